"""One family, or distribution, of the service: its coordinator, its traffic, and what readers see."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from countless.core.answer import State
from countless.core.family.answer import LabelCounts, Top
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.distribution import Quantile, Rank, Ranks
from countless.core.family.messages import OVERFLOW
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.messages import SiteName
from countless.core.windows.window import TotalAnswer
from countless.errors import InvalidParameter
from countless.server.sessions.counter import Traffic, Watched
from countless.server.storage.base import SavedFamily
from countless.server.storage.save_health import SaveHealth
from countless.wire.names import overflow_name

SCHEMES = {LABELS: "family", VALUES: "distribution"}  # what the page calls them


class ServedFamily(Watched):
    """Readers see the total, labels and quantiles once they are saved: none falls when the coordinator is restarted."""

    def __init__(
        self, name: str, rule: FamilyRule, saved: SavedFamily | None = None, health: SaveHealth | None = None
    ) -> None:
        super().__init__(health)
        self.name = name
        self.rule = rule
        state = None if saved is None else saved.state
        self.coordinator = FamilyCoordinator(name, rule.steps, saved_state=state)
        self.traffic = Traffic(self.coordinator.total().lower, new=saved is None)
        self._counts = dict(self.coordinator.known)  # as they were saved last
        self.published, self._total = self._present()

    def publication(self, labels: Mapping[str, int]) -> Callable[[], None]:
        return partial(self._publish, labels, *self._present())

    def _publish(self, labels: Mapping[str, int], published: LabelCounts, answer: TotalAnswer) -> None:
        self._counts.update(labels)
        self.published = published
        if labels or answer != self._total:  # a label may be watched, too
            self._total = answer
            self.notify()

    def _present(self) -> tuple[LabelCounts, TotalAnswer]:
        tracked = self.coordinator
        counts = LabelCounts(self._counts, tracked.total().lower, tracked.held_back, tracked.state)
        return counts, total_of(counts, self.rule, tracked.round, tracked.sites, tracked.unreachable)

    # Reading

    @property
    def published_answer(self) -> TotalAnswer:
        return self._total._replace(state=self.state)

    @property
    def state(self) -> State:
        return self.health.shown(self._total.state)

    def series_name(self, label: str) -> str:
        """A label of a family is what follows its name in that of a series; events without labels have the name.

        >>> ServedFamily("requests", FamilyRule("labels", 0.01)).series_name('{tenant="acme"}')
        'requests{tenant="acme"}'
        """
        return overflow_name(self.name) if label == OVERFLOW else self.name + label.removeprefix("{}")

    def label_of(self, series: str) -> str:
        label = series.removeprefix(self.name)
        return OVERFLOW if series == overflow_name(self.name) else label or "{}"

    def top(self, share: float) -> Top:
        if self.rule.kind != LABELS:
            raise InvalidParameter("counter", self.name, "a counter with labels: this is a distribution of values")
        return self.published.top(share)

    def quantiles(self, shares: Iterable[float]) -> list[Quantile]:
        """Empty if nothing is known."""
        ranks = self._ranks()
        return [found for q in shares if (found := ranks.quantile(q)) is not None]

    def rank(self, value: float) -> Rank:
        return self._ranks().rank(value)

    def _ranks(self) -> Ranks:
        return Ranks(self.published.counts, self.published.held_back.total, self.rule.buckets)


def total_of(
    counts: LabelCounts, rule: FamilyRule, number: int, sites: int, unreachable: tuple[SiteName, ...]
) -> TotalAnswer:
    """With the fields that an answer of a counter has: the bounds are certain, so delta is 0."""
    _, estimate, lower, upper = counts.total()
    return TotalAnswer(
        estimate, lower, upper, rule.epsilon, 0.0, counts.state, number, sites, SCHEMES[rule.kind], unreachable
    )
