"""The events that really happened, and the checks of every answer against them.

| checked                                              | when                                                         |
|------------------------------------------------------|--------------------------------------------------------------|
| no counter and no window knows more than has happened| after every action                                           |
| no label of a family is known more often than counted| after every action                                           |
| no published total falls, and no label of a family   | after every action, across restarts                          |
| answers are `exact` or `holding` and inside their    | when the world has healed and is quiet                       |
| bounds; every process is connected; each label of a  |                                                              |
| family is within epsilon of the total of all         |                                                              |
| every event is known                                 | when all processes have closed their clients                 |

`reader.py` has the checks of what a reader is shown, `spending.py` those of budgets.

Events of a process that kept them in memory and was killed may be lost, and so may what an expired incarnation has
sent: `may_be_lost` has their number, and only these may be missing.
"""

from collections import Counter
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from countless.core.answer import State
from countless.core.family.messages import OVERFLOW
from countless.core.family.rule import LABELS
from countless.errors import InvariantBroken
from countless.server.kinds.counter import WindowedCounter
from countless.server.kinds.family import TrackedFamily, WindowedFamily
from countless.server.site_server import SiteServer
from countless.wire.keys import COUNTER, key_of

Label = tuple[str, str]  # a family, or a window of one, and a label of it


class Undelivered(NamedTuple):
    """Counts that processes could not deliver, because they are in windows of a clock that was wrong."""

    events: Counter[str]
    labels: Counter[Label]


class Truth:
    def __init__(self) -> None:
        self.events: Counter[str] = Counter()  # by counter, or by the text of a window
        self.may_be_lost: Counter[str] = Counter()  # likewise
        self.labels: Counter[Label] = Counter()  # of families and distributions
        self.labels_maybe_lost: Counter[Label] = Counter()
        self._published: dict[str, float] = {}
        self._published_labels: dict[Label, int] = {}

    def count(self, name: str | Label, n: int) -> None:
        (self.events if isinstance(name, str) else self.labels).update({name: n})  # type: ignore[dict-item]

    def add_lost(self, counts: Counter[str | Label]) -> None:
        for name, n in counts.items():
            (self.may_be_lost if isinstance(name, str) else self.labels_maybe_lost).update({name: n})  # type: ignore[dict-item]

    def on_restored(self, lost: Counter[str | Label]) -> None:
        """The state is an older copy, which knows less."""
        self.add_lost(lost)
        self._published.clear()
        self._published_labels.clear()

    # Always

    def check(self, servers: list[SiteServer]) -> None:
        for server in servers:
            for name, counter in server.counters.items():
                largest = counter.largest_published
                _require(largest >= self._published.get(name, 0.0), f"the total of {name} has fallen to {largest}")
                self._published[name] = largest
            for name, known in known_counts(server).items():
                _require(known <= self.events[name], f"{known} events of {name} are known of {self.events[name]}")
            self._check_labels(server)

    def _check_labels(self, server: SiteServer) -> None:
        for label, known in known_labels(server).items():
            _require(known <= self.labels[label], f"{known} events of {label} are known of {self.labels[label]}")
        for name, family in server.families.by_name.items():
            known, events = family.known_total, self._total(name)
            _require(known <= events, f"{known} events of {name} are known of {events}")
            for text, count in family.published.counts.items():
                before = self._published_labels.get((name, text), 0)
                _require(count >= before, f"{text} of {name} was {before}, and is {count}")
                self._published_labels[name, text] = count

    def total(self, name: str) -> int:
        """The events of a counter with its windows and labelled series, of a family, or of a label of one."""
        families = ((key_of(COUNTER, family).name, label, n) for (family, label), n in self.labels.items())
        labels = (n for family, label, n in families if name in (family, f"{family}{label}"))
        return _sum_of_series(self.events, name) + sum(labels)

    def lost(self, name: str) -> int:
        """The most events of a counter, with its windows and labelled series, that may be lost."""
        return _sum_of_series(self.may_be_lost, name)

    def _total(self, family: str) -> int:
        """The events of a family, or of a window of one."""
        return sum(count for (name, _), count in self.labels.items() if family in (name, key_of(COUNTER, name).name))

    # When the world is quiet

    def check_answers(self, server: SiteServer) -> None:
        for name, counter in server.counters.items():
            if isinstance(counter, WindowedCounter):
                continue
            answer = counter.published_answer
            _require(answer.state in (State.EXACT, State.HOLDING), f"{name} is not quiet: {answer}")
            total, lost = self.events[name], self.may_be_lost[name]
            _require(answer.lower <= total <= answer.upper + lost, f"{name} is {answer}, in truth {total}")

        for family in server.families.by_name.values():
            for each in family.kept.values() if isinstance(family, WindowedFamily) else [family]:
                self._check_family(each.name, each)

    def _check_family(self, name: str, family: TrackedFamily) -> None:
        known, epsilon = family.published, family.spec.epsilon
        _require(known.state in (State.EXACT, State.HOLDING), f"{name} is not quiet: {known.state}")
        family.coordinator.check()
        for (_, label), count in [each for each in self.labels.items() if each[0][0] == name]:
            answer, lost = known.answer(label), self.labels_maybe_lost[name, label]
            _require(answer.lower <= count <= answer.upper + lost, f"{name} is {answer}, in truth {count}")
        total, events = known.total(), self._total(name)
        lost = sum(count for (family_name, _), count in self.labels_maybe_lost.items() if family_name == name)
        _require(total.lower <= events <= total.upper + lost, f"{name} is {total}, in truth {events}")
        widest = max(known.held_back.label, known.held_back.total / 2)
        _require(widest <= epsilon * events, f"{name} may miss {widest} of {events} events: epsilon is {epsilon}")
        if not lost and events:
            self._check_largest(family, Counter({label: n for (each, label), n in self.labels.items() if each == name}))

    def _check_largest(self, family: TrackedFamily, labels: Counter[str]) -> None:
        """The top has every label with the share, and none far below it; quantiles are inside their bounds."""
        if family.spec.kind == LABELS:
            for share in (family.spec.epsilon, 0.5):
                self._check_top(family, labels, share)
            return
        values = sorted(Counter({int(label): n for label, n in labels.items()}).elements())  # numbers of their buckets
        for found in family.quantiles((0.1, 0.5, 0.9), family.published):
            exact = family.spec.buckets.middle(values[max(1, ceil(Fraction(repr(found.q)) * len(values))) - 1])
            _require(found.lower <= exact <= found.upper, f"{found} of {family.name}, in truth {exact}")

    def _check_top(self, family: TrackedFamily, labels: Counter[str], share: float) -> None:
        listed, total = {each.label or "" for each in family.published.top(share).labels}, labels.total()
        missing = {label for label, n in labels.items() if label and n >= share * total} - listed
        _require(not missing, f"{missing} are not in the top of {family.name}")
        if not family.published.counts.get(OVERFLOW):
            least = (share - (0.75 + 2 * share) * family.spec.epsilon) * total
            small = {label for label in listed if labels[label] < least - 1e-6}
            _require(not small, f"{small} are in the top of {family.name}, with less than {least} of {total} events")

    def check_all_known(self, servers: list[SiteServer], kept: Undelivered) -> None:
        known = {name: count for server in servers for name, count in known_counts(server).items()}
        for name, events in self.events.items():
            undelivered = kept.events[name] if key_of(COUNTER, name).is_window else 0
            missing = events - known.get(name, 0)
            _require(
                missing <= undelivered + self.may_be_lost[name],
                f"{missing} events of {name} are missing of {events}, of which {self.may_be_lost[name]} may be lost",
            )
        families = [family for server in servers for family in server.families.by_name.values()]
        labels = {(family.name, label): n for family in families for label, n in family.published.counts.items()}
        may_miss = _of_all_windows(self.labels_maybe_lost) + _of_all_windows(kept.labels)
        for label, events in _of_all_windows(self.labels).items():
            missing, lost = events - labels.get(label, 0), may_miss[label]
            _require(missing <= lost, f"{missing} events of {label} are missing of {events}, {lost} may be lost")


def _sum_of_series(events: Counter[str], name: str) -> int:
    return sum(n for each, n in events.items() if f"{key_of(COUNTER, each).name}{{".startswith(f"{name}{{"))


def _of_all_windows(labels: Counter[Label]) -> Counter[Label]:
    total: Counter[Label] = Counter()
    for (name, label), count in labels.items():
        total[key_of(COUNTER, name).name, label] += count
    return total


def families_of(server: SiteServer) -> list[TrackedFamily]:
    """Families without windows, and windows that are kept."""
    found = server.families.by_name.values()
    plain = [family for family in found if not isinstance(family, WindowedFamily)]
    windows = [window for family in found if isinstance(family, WindowedFamily) for window in family.kept.values()]
    return [*plain, *windows]


def known_labels(server: SiteServer) -> dict[Label, int]:
    families = families_of(server)
    return {(each.name, label): n for each in families for label, n in each.coordinator.known.items()}


def known_counts(server: SiteServer) -> dict[str, int]:
    """By counter, or by the text of a window."""
    known: dict[str, int] = {}
    for name, counter in server.counters.items():
        if not isinstance(counter, WindowedCounter):
            known[name] = counter.known_total
            continue
        for period, tracker in counter.open.items():
            known[str(counter.key.window(period))] = tracker.known_total
        for period in counter.closed:
            known[str(counter.key.window(period))] = counter.closed.get(period) or 0
    return known


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise InvariantBroken(otherwise)
