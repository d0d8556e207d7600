"""One family, or distribution, of the service: its coordinator, its traffic, and what readers see."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import time
from typing import NamedTuple

from countless.core.answer import State
from countless.core.family.answer import LabelCounts
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.distribution import Quantile, Rank, Ranks
from countless.core.family.messages import OVERFLOW, PersistentFamily, SavedMember, Steps
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.messages import SiteId, SiteName
from countless.core.periods.window import TotalAnswer
from countless.errors import NoWindows
from countless.server.sessions.lost_sites import Loss
from countless.server.sessions.readable import LabelReader, MessageCount, ValueReader
from countless.server.sessions.tracked import OnChange, Watched, Whole
from countless.server.storage.health import SaveHealth
from countless.server.storage.rows import KeyRows, Publish, Row, Rows, alone, row_of, value_of, values_of
from countless.wire.keys import Key, label_of_series, series_of_label

SCHEMES = {LABELS: "family", VALUES: "distribution"}  # what the page calls them


class FamilyFields(NamedTuple):
    """What is saved of a family beside its labels and its sites.

    A family with windows has no sites. Its labels and its `total` are those of the windows that are not kept any more,
    its `round` is the first period that is. Each window that is kept is a family of its own.
    """

    rule: FamilyRule
    round: int
    steps: Steps
    slots: int
    total: int
    lost: int  # sites that ended without saying how much they had counted ...
    lost_until: int = 0  # ... of a window: in this one and the later ones up to this


class MemberFields(NamedTuple):
    """What is saved of a site of a family beside its counts: the highest steps that may be in force, and its total."""

    steps: Steps
    total: int


class SavedFamily(NamedTuple):
    fields: FamilyFields
    labels: dict[str, int]  # what is known of each label
    members: dict[SiteId, SavedMember]

    @classmethod
    def of(cls, key: Key, rows: KeyRows) -> "SavedFamily":
        counts: dict[SiteId, dict[str, int]] = {}
        for (site, number, label), n in values_of(key, rows, "count", int):
            counts.setdefault(SiteId(site, number), {})[label] = n
        members = {}
        for place, member in values_of(key, rows, "member", MemberFields):
            site_id = SiteId(*place)
            members[site_id] = SavedMember(*member, counts.get(site_id, {}))
        labels = {label: n for (_, _, label), n in values_of(key, rows, "label", int)}
        return cls(value_of(key, rows, "state", FamilyFields), labels, members)

    @property
    def state(self) -> PersistentFamily:
        _, number, steps, slots, total, lost, _ = self.fields
        return PersistentFamily(number, steps, slots, total, self.labels, self.members, (), lost)


class FamilyReader(Watched):
    """How labels, or the values of a distribution, are read: of all that was counted, or of the counts of a span."""

    has_rolling = False
    name: str
    rule: FamilyRule
    traffic: MessageCount

    @property
    @abstractmethod
    def published_answer(self) -> TotalAnswer: ...

    @property
    @abstractmethod
    def published(self) -> LabelCounts: ...

    def labels_between(self, start: float, end: float) -> LabelCounts:
        raise NoWindows(self.name, has_rolling=False)

    @property
    def labels(self) -> LabelReader | None:
        return self if self.rule.kind == LABELS else None

    @property
    def values(self) -> ValueReader | None:
        return self if self.rule.kind == VALUES else None

    @property
    def epsilon(self) -> float:
        return self.rule.epsilon

    @property
    def accuracy(self) -> float:
        return self.rule.accuracy

    def series_name(self, label: str) -> str:
        """A label of a family is what follows its name in that of a series; events without labels have the name.

        >>> TrackedFamily(Key("family", "requests"), FamilyRule("labels", 0.01)).series_name('{tenant="acme"}')
        'requests{tenant="acme"}'
        """
        return series_of_label(self.name, label)

    def label_of(self, series: str) -> str:
        return label_of_series(self.name, series)

    def quantiles(self, shares: Iterable[float], counts: LabelCounts) -> list[Quantile]:
        ranks = self._ranks(counts)
        return [found for q in shares if (found := ranks.quantile(q)) is not None]

    def rank(self, value: float, counts: LabelCounts) -> Rank:
        return self._ranks(counts).rank(value)

    def _ranks(self, counts: LabelCounts) -> Ranks:
        return Ranks(counts.counts, counts.held_back.total + counts.missing, self.rule.buckets)


class TrackedFamily(FamilyReader):
    """A family without windows, or one window: then `part_of` is the family, and `traffic` that of all windows.

    Readers see the total, labels and quantiles once they are saved: none falls when the coordinator is restarted.

    | row      | of each        | value                                |
    |----------|----------------|--------------------------------------|
    | `state`  | family         | `FamilyFields`                       |
    | `label`  | label          | what is known of it, an integer      |
    | `member` | site           | `MemberFields`                       |
    | `count`  | site and label | what the site has reported of it     |
    """

    def __init__(
        self,
        key: Key,
        rule: FamilyRule,
        saved: SavedFamily | None = None,
        health: SaveHealth | None = None,
        *,
        expected_sites: int = 0,
        part_of: Whole | None = None,
        traffic: MessageCount | None = None,
        on_change: OnChange | None = None,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        super().__init__(health, on_change)
        self.key = key
        self.name = str(key)
        self.rule = rule
        self.part_of: Whole | None = part_of
        self._changed_sites: dict[SiteId | None, set[str]] = {}  # with labels; None: labels whose counts have changed
        self.loss: Loss | None = None  # of a window; its owner sets it
        state = None if saved is None else saved.state
        self.coordinator = FamilyCoordinator(self.name, rule.steps, expected_sites=expected_sites, saved_state=state)
        self.traffic = traffic or MessageCount(self.known_total, saved is None, wall_clock())
        self._own_counts: dict[str, int] | None = dict(self.coordinator.known)  # None: those of the coordinator
        self._published, self._total = self.snapshot()

    @property
    def published(self) -> LabelCounts:
        return self._published

    @property
    def known_total(self) -> int:
        return self.coordinator.total().lower

    # Saving

    def mark(self) -> None:
        """The round, the total or the answer may have changed."""
        self.on_change(self)

    def mark_site(self, site_id: SiteId, labels: Iterable[str] = ()) -> None:
        """The steps or the total of a site, and its counts of these labels, may have changed. One that is not a member
        any more stays marked, so that its labels are saved as well.
        """
        self._changed_sites.setdefault(site_id, set()).update(labels)
        self.on_change(self)

    mark_left = mark_site

    def mark_labels(self, labels: Iterable[str]) -> None:
        """The counts of these labels may have changed, and that of no site."""
        self._changed_sites.setdefault(None, set()).update(labels)
        self.on_change(self)

    def fields(self) -> FamilyFields:
        tracked, loss = self.coordinator, self.loss
        lost = (tracked.lost, 0) if self.part_of is None else loss or (0, 0)
        return FamilyFields(self.rule, tracked.round, tracked.steps, tracked.slots, self.known_total, *lost)

    def take(self, rows: Rows) -> Publish:
        tracked, own = self.coordinator, rows.setdefault(self.key, {})
        own["state"] = alone(self.fields())
        changed, self._changed_sites = self._changed_sites, {}
        labels: dict[str, int] = {}
        members, counts, known = list[Row](), list[Row](), tracked.known
        for site_id, named in changed.items():
            member = None if site_id is None else tracked.saved_member(site_id)
            if site_id is not None and member is not None:
                members.append(row_of(site_id, MemberFields(member.steps, member.total)))
                site, number = str(site_id.site), site_id.incarnation
                counts += [(site, number, label, member.counts[label]) for label in named if label in member.counts]
            labels.update({label: known[label] for label in (*named, OVERFLOW) if label in known})
        if changed:
            own["label"] = [("", 0, label, n) for label, n in labels.items()]
            own["member"], own["count"] = members, counts
        return partial(self._publish, labels, *self.snapshot())

    def _publish(self, labels: Mapping[str, int], published: LabelCounts, answer: TotalAnswer) -> None:
        if self._own_counts is not None:
            self._own_counts.update(labels)
        self._published = published._replace(counts=self._counts)
        if labels or answer != self._total:  # a label may be watched, too
            self._total = answer
            self.notify()

    def snapshot(self) -> tuple[LabelCounts, TotalAnswer]:
        """What is known now, but for the counts of labels, which are those that were saved last."""
        tracked = self.coordinator
        counts = LabelCounts(self._counts, self.known_total, tracked.held_back, tracked.state)
        return counts, total_of(counts, self.rule, tracked.round, tracked.sites, tracked.unreachable)

    def seal(self) -> None:
        """Everything is saved, and nothing changes: one copy of the counts is enough."""
        if self._own_counts is not None:
            self._own_counts = None
            self._published = self._published._replace(counts=self._counts)

    def unseal(self) -> None:
        if self._own_counts is None:
            self._own_counts = dict(self.coordinator.known)
            self._published = self._published._replace(counts=self._counts)

    @property
    def _counts(self) -> Mapping[str, int]:
        """As they were saved last."""
        return self.coordinator.known if self._own_counts is None else self._own_counts

    # Reading

    @property
    def published_answer(self) -> TotalAnswer:
        return self._total._replace(state=self.state)

    @property
    def state(self) -> State:
        return self.health.shown(self._total.state)


def total_of(
    counts: LabelCounts, rule: FamilyRule, number: int, sites: int, unreachable: tuple[SiteName, ...]
) -> TotalAnswer:
    """With the fields that an answer of a counter has: the bounds are certain, so delta is 0."""
    _, estimate, lower, upper = counts.total()
    return TotalAnswer(
        estimate, lower, upper, rule.epsilon, 0.0, counts.state, number, sites, SCHEMES[rule.kind], unreachable
    )
