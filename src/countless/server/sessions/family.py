"""One family, or distribution, of the service: its coordinator, its traffic, and the total that readers see."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from countless.core.answer import State
from countless.core.family.answer import LabelCount, Top
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.distribution import Quantile, Rank, Ranks
from countless.core.family.messages import OVERFLOW
from countless.core.family.rule import LABELS, FamilyRule
from countless.errors import InvalidParameter
from countless.server.sessions.counter import Traffic, Watched
from countless.server.storage.base import SavedFamily
from countless.wire.names import overflow_name


class FamilyAnswer(NamedTuple):
    estimate: float
    lower: int
    upper: int
    state: State


class ServedFamily(Watched):
    """The total is published when it is saved. Labels, `top` and quantiles are read as the coordinator knows them.

    A label that was read and not saved is in the answers again when its site has reconnected after a restart.
    """

    def __init__(self, name: str, rule: FamilyRule, saved: SavedFamily | None = None) -> None:
        super().__init__()
        self.name = name
        self.rule = rule
        state = None if saved is None else saved.state
        self.coordinator = FamilyCoordinator(name, rule.steps, saved_state=state)
        self.traffic = Traffic(self.coordinator.total().lower, new=saved is None)
        self.published_answer = self._answer(self.coordinator.total())

    def publication(self) -> Callable[[], None]:
        return partial(self._publish, self._answer(self.coordinator.total()))

    def _publish(self, answer: FamilyAnswer) -> None:
        if answer != self.published_answer:
            self.published_answer = answer
            self.notify()

    def _answer(self, count: LabelCount) -> FamilyAnswer:
        return FamilyAnswer(count.estimate, count.lower, count.upper, self.coordinator.state)

    # Reading

    def series_name(self, label: str) -> str:
        """A label of a family is what follows its name in that of a series; events without labels have the name.

        >>> ServedFamily("requests", FamilyRule("labels", 0.01)).series_name('{tenant="acme"}')
        'requests{tenant="acme"}'
        """
        return overflow_name(self.name) if label == OVERFLOW else self.name + label.removeprefix("{}")

    def label_of(self, series: str) -> str:
        label = series.removeprefix(self.name)
        return OVERFLOW if series == overflow_name(self.name) else label or "{}"

    def label_answer(self, label: str) -> FamilyAnswer:
        return self._answer(self.coordinator.answer(label))

    def top(self, share: float) -> Top:
        if self.rule.kind != LABELS:
            raise InvalidParameter("counter", self.name, "a counter with labels: this is a distribution of values")
        return self.coordinator.top(share)

    def quantiles(self, shares: Iterable[float]) -> list[Quantile]:
        """Empty if nothing is known."""
        ranks = self._ranks()
        return [found for q in shares if (found := ranks.quantile(q)) is not None]

    def rank(self, value: float) -> Rank:
        return self._ranks().rank(value)

    def _ranks(self) -> Ranks:
        return Ranks(self.coordinator.known, self.coordinator.held_back.total, self.rule.buckets)
