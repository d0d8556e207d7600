"""A family, or distribution, of the service, or one window of it: its coordinator, its traffic, and what readers see;
and a family with windows.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from countless.core.answer import State
from countless.core.family.answer import LabelCounts, sum_of
from countless.core.family.coordinator import MAX_LABELS, FamilyCoordinator
from countless.core.family.distribution import Quantile, Rank, Ranks
from countless.core.family.messages import OVERFLOW, PersistentFamily, SavedMember, Steps
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.messages import SiteId
from countless.core.periods.window import TotalAnswer
from countless.errors import NoWindows
from countless.server.kinds.label_shares import newest
from countless.server.sessions.closed_windows import ClosedWindows
from countless.server.sessions.periodic import Opening, Periodic
from countless.server.sessions.published_windows import PublishedWindows
from countless.server.sessions.readable import LabelReader, MessageCount, ValueReader
from countless.server.sessions.tracked import Counted, Surroundings, Watched, Whole
from countless.server.storage.rows import KeyRows, Publish, Row, Rows, alone, row_of, value_of, values_of
from countless.wire.keys import Key, label_of_series, series_of_label

MAX_SUMS = 4  # of spans of several windows: today, yesterday ...
SCHEMES = {LABELS: "family", VALUES: "distribution"}  # what the page calls them


class FamilyFields(NamedTuple):
    """The fields that are saved of a family, or of one window, beside its spec, its labels and its sites."""

    round: int
    steps: Steps
    slots: int
    total: int
    lost: int  # sites that ended without saying how much they had counted


class MemberFields(NamedTuple):
    """The fields that are saved of a site beside its counts: the highest steps that may be in force, and its total."""

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
        number, steps, slots, total, lost = self.fields
        return PersistentFamily(number, steps, slots, total, self.labels, self.members, (), lost)


class FamilyReader(Watched):
    """Reads labels, or the values of a distribution: of all that was counted, or of the counts of a span."""

    has_rolling = False
    name: str
    spec: FamilyRule
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
        return self if self.spec.kind == LABELS else None

    @property
    def values(self) -> ValueReader | None:
        return self if self.spec.kind == VALUES else None

    @property
    def epsilon(self) -> float:
        return self.spec.epsilon

    @property
    def accuracy(self) -> float:
        return self.spec.accuracy

    def series_name(self, label: str) -> str:
        """The name of a label's series. Events without labels have the family's name."""
        return series_of_label(self.name, label)

    def label_of(self, series: str) -> str:
        return label_of_series(self.name, series)

    def quantiles(self, shares: Iterable[float], counts: LabelCounts) -> list[Quantile]:
        ranks = self._ranks(counts)
        return [found for q in shares if (found := ranks.quantile(q)) is not None]

    def rank(self, value: float, counts: LabelCounts) -> Rank:
        return self._ranks(counts).rank(value)

    def _ranks(self, counts: LabelCounts) -> Ranks:
        return Ranks(counts.counts, counts.held_back.total + counts.most_missing, self.spec.buckets)


class TrackedFamily(FamilyReader, Counted[FamilyRule]):
    """Its `traffic`, as a window, is that of all windows.

    Readers see the total, labels and quantiles once they are saved: none falls when the coordinator is restarted.

    | row      | of each          | value                            |
    |----------|------------------|----------------------------------|
    | `state`  | family or window | `FamilyFields`                   |
    | `label`  | label            | what is known of it, an integer  |
    | `member` | site             | `MemberFields`                   |
    | `count`  | site and label   | what the site has reported of it |
    """

    taken: TotalAnswer

    def __init__(
        self,
        key: Key,
        rule: FamilyRule,
        around: Surroundings,
        saved: SavedFamily | None = None,
        *,
        expected_sites: int = 0,
        part_of: Whole | None = None,
        traffic: MessageCount | None = None,
    ) -> None:
        super().__init__(key, rule, around, part_of)
        self._changed_sites: dict[SiteId | None, set[str]] = {}  # with labels; None: labels whose counts have changed
        state = None if saved is None else saved.state
        self.coordinator: FamilyCoordinator = FamilyCoordinator(
            self.name, rule.steps, expected_sites=expected_sites, saved_state=state
        )
        self.traffic = traffic or MessageCount(self.known_total, saved is None, around.wall_clock())
        self._own_counts: dict[str, int] | None = dict(self.coordinator.known)  # None: those of the coordinator
        self._published = self._counts_now()
        self._total = self.taken = self._answer_now()

    @property
    def published(self) -> LabelCounts:
        return self._published

    @property
    def known_total(self) -> int:
        return self.coordinator.total().lower

    @property
    def members(self) -> Iterable[SiteId]:
        return self.coordinator.site_ids

    # Saving

    def mark_site(self, site_id: SiteId, labels: Iterable[str] = ()) -> None:
        """The steps or the total of a site, and its counts of these labels, may have changed. One that is not a member
        any more stays marked, so that its labels are saved as well.
        """
        self._changed_sites.setdefault(site_id, set()).update(labels)
        self.around.changed(self)

    mark_left = mark_site

    def mark_labels(self, labels: Iterable[str]) -> None:
        """The counts of these labels may have changed, and that of no site."""
        self._changed_sites.setdefault(None, set()).update(labels)
        self.around.changed(self)

    def take(self, rows: Rows) -> Publish:
        tracked, own = self.coordinator, self._own_rows(rows)
        own["state"] = alone(FamilyFields(tracked.round, tracked.steps, tracked.slots, self.known_total, tracked.lost))
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
        self.taken = self._answer_now()
        return partial(self._publish, labels, self._counts_now(), self.taken)

    def _publish(self, labels: Mapping[str, int], published: LabelCounts, answer: TotalAnswer) -> None:
        if self._own_counts is not None:
            self._own_counts.update(labels)
        self._published = published._replace(counts=self._counts)
        if labels or answer != self._total:  # a label may be watched, too
            self._total = answer
            self.notify()

    def _counts_now(self) -> LabelCounts:
        """The counts that are known now, but those of labels as they were saved last."""
        tracked = self.coordinator
        return LabelCounts(self._counts, self.known_total, tracked.held_back, tracked.state)

    @property
    def largest(self) -> float:
        return self.known_total

    def _answer_now(self) -> TotalAnswer:
        """With the fields that an answer of a counter has: the bounds are certain, so delta is 0."""
        tracked, (_, estimate, lower, upper) = self.coordinator, self._counts_now().total()
        sites, silent, scheme = tracked.sites, tracked.unreachable, SCHEMES[self.spec.kind]
        return TotalAnswer(
            estimate, lower, upper, self.spec.epsilon, 0.0, tracked.state, tracked.round, sites, scheme, silent
        )

    # A window of which nothing is received any more

    def absorb(self, other: "TrackedFamily") -> set[str]:
        """Add what it has counted. Returns its labels that this did not have."""
        counts, before = other.coordinator.known, len(self.coordinator.known)
        self.coordinator.absorb(counts, other.known_total)
        self.mark_labels(counts)
        return set(newest(self.coordinator.known, before))

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

    @property
    def published_answer(self) -> TotalAnswer:
        return self._total._replace(state=self.health.shown(self._total.state))


class WindowedFamily(Periodic[TrackedFamily, FamilyRule], FamilyReader):
    """A family with windows: each window is a family of its own, and all labels of those that are kept are known.

    | window  | kept as                                                                                       |
    |---------|-----------------------------------------------------------------------------------------------|
    | open    | a `TrackedFamily` with its sites                                                              |
    | closed  | the same, without sites: a site that was away may open it again                               |
    | dropped | its labels are added to `dropped_windows`, a family without sites, saved with the windows' key |

    What is counted over all windows is the sum of the closed and dropped ones, which changes once in a window, and of
    the open ones. `on_dropped` is called with each window that is dropped, and with its labels that no other dropped
    window had.
    """

    def __init__(
        self, key: Key, rule: FamilyRule, around: Surroundings, on_dropped: Callable[[TrackedFamily, set[str]], None]
    ) -> None:
        self.kept: dict[int, TrackedFamily] = {}  # open and closed
        self._shown: dict[int, TrackedFamily] = {}  # as it was saved last
        self._settled = self._shown_settled = sum_of([], MAX_LABELS)  # of all windows that are not open
        self._sums: dict[tuple[int, ...], LabelCounts] = {}  # of closed windows, by their periods
        self._all: LabelCounts | None = None  # of what is published, once a reader has asked for it
        self._on_dropped = on_dropped
        super().__init__(key, rule, around)
        self.dropped_windows = TrackedFamily(key, rule, around, part_of=self, traffic=self.traffic)

    def load(self, rows: KeyRows, windows: Iterable[tuple[Key, KeyRows]]) -> None:
        super().load(rows, windows)
        self._settle()
        self._show_labels(dict(self.kept), self._settled)

    def _load_dropped(self, rows: KeyRows) -> None:
        saved = SavedFamily.of(self.key, rows)
        self.dropped_windows = TrackedFamily(
            self.key, self.spec, self.around, saved, part_of=self, traffic=self.traffic
        )

    def _load_window(self, key: Key, rows: KeyRows) -> TrackedFamily:
        rule, saved = value_of(key, rows, "spec", FamilyRule), SavedFamily.of(key, rows)
        window = TrackedFamily(key, rule, self.around, saved, part_of=self, traffic=self.traffic)
        self.kept[key.period] = window
        return window

    def _load_closed(self, key: Key, rows: KeyRows) -> None:
        self._load_window(key, rows).seal()

    def begin(self, before: TrackedFamily) -> None:
        super().begin(before)
        self.dropped_windows.traffic = before.traffic
        self.dropped_windows.absorb(before)
        self._settle()
        # Until it is saved, readers see what was saved last.
        self._show_labels(dict.fromkeys(self._published.open, before), sum_of([], MAX_LABELS))

    # Reading what is saved

    @property
    def published(self) -> LabelCounts:
        """The counts of all windows, also those that are not kept any more."""
        if self._all is None:
            opened = (self._shown[period].published for period in self._published.open)
            self._all = sum_of([self._shown_settled, *opened], MAX_LABELS)
        return self._all

    def labels_between(self, start: float, end: float) -> LabelCounts:
        """The counts of the windows of a span, which has all of a window or nothing of it."""
        periods = (period for period in self._shown if period >= self._published.first)
        inside = [each for each in periods if start <= self.calendar.bounds(each)[0] < end]
        closed = tuple(each for each in inside if each not in self._published.open)
        opened = (self._shown[each].published for each in inside if each in self._published.open)
        counts = sum_of([self._sum_of_closed(closed), *opened], MAX_LABELS)
        is_known = self.kept_from is None or start >= self.kept_from
        return counts if is_known else counts._replace(missing=self._not_kept())

    def _not_kept(self) -> LabelCounts:
        """The counts that `most_not_kept` adds up."""
        again = [period for period in self._published.open if period < self._published.first]
        parts = [self.dropped_windows.published, *(self._shown[period].published for period in again)]
        return sum_of(parts, MAX_LABELS)

    def _sum_of_closed(self, periods: tuple[int, ...]) -> LabelCounts:
        """A day of hours with 10,000 labels takes a tenth of a second, so it is computed once in a window."""
        if periods not in self._sums:
            if len(self._sums) >= MAX_SUMS:
                self._sums.clear()
            self._sums[periods] = sum_of((self._shown[each].published for each in periods), MAX_LABELS)
        return self._sums[periods]

    def _total_of(self, published: PublishedWindows) -> TotalAnswer:
        return published.total(self.spec.epsilon, 0.0, SCHEMES[self.spec.kind])

    @property
    def coordinator(self) -> FamilyCoordinator:
        """The coordinator of the latest window that is open."""
        return self.open[max(self.open)].coordinator if self.open else self.dropped_windows.coordinator

    # Windows

    @property
    def saved(self) -> list[TrackedFamily]:
        """All families with rows of their own."""
        return [self.dropped_windows, *self.kept.values()]

    def _open_window(self, key: Key, opening: Opening) -> TrackedFamily:
        window = self.kept.get(key.period)
        if window is None:
            rule = replace(self.spec, windows=None)
            window = self.kept[key.period] = TrackedFamily(
                key, rule, self.around, expected_sites=opening.expected_sites, part_of=self, traffic=self.traffic
            )
        else:
            window.unseal()
            self._settle()
        return window

    def _closed_window(self, tracker: TrackedFamily) -> None:
        self._settled = sum_of([self._settled, _counts_of(tracker)], MAX_LABELS)

    def _dropped_window(self, period: int) -> None:
        window = self.kept.pop(period)
        self._on_dropped(window, self.dropped_windows.absorb(window))
        self.around.remove(window)

    def _settle(self) -> None:
        parts = [self.dropped_windows, *(self.kept[period] for period in self.closed)]
        self._settled = sum_of(map(_counts_of, parts), MAX_LABELS)

    # Saving and publishing

    def mark_spec(self) -> None:
        super().mark_spec()
        self.dropped_windows.mark()

    def take(self, rows: Rows) -> Publish:
        return partial(self._publish_labels, super().take(rows), self.closed, dict(self.kept), self._settled)

    def _publish_labels(
        self, publish: Publish, closed: ClosedWindows, kept: dict[int, TrackedFamily], settled: LabelCounts
    ) -> None:
        publish()
        self._show_labels(kept, settled)
        if closed is self.closed:  # otherwise one of them may have been opened again, and have changed
            for period in closed:
                kept[period].seal()
        self.notify()  # a label may be watched, too

    def _show(self, published: PublishedWindows) -> None:
        if published.closed is not self._published.closed:
            self._sums.clear()
        super()._show(published)

    def _show_labels(self, kept: dict[int, TrackedFamily], settled: LabelCounts) -> None:
        self._shown, self._shown_settled, self._all = kept, settled, None


def _counts_of(window: TrackedFamily) -> LabelCounts:
    """The counts of a window without sites, so that everything is known."""
    return LabelCounts(window.coordinator.known, window.known_total, Steps(0, 0), State.EXACT)


AnyFamily = TrackedFamily | WindowedFamily
