"""A family, or a distribution, in one process: it counts labels, and queues the reports that are due."""

from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Protocol

from countless.client.kinds.family import FamilyMember
from countless.client.local_windows import LocalWindows
from countless.client.reentrant import Reentrant
from countless.core.family.messages import OVERFLOW, DownMessage, Totals, UpMessage
from countless.core.family.rule import LABELS, FamilyRule
from countless.core.family.site import require_label
from countless.core.site import require_increment
from countless.errors import InvalidParameter
from countless.wire.families import KnownFamily
from countless.wire.keys import Key, label_of_series

Deliver = Callable[[Key, tuple[UpMessage, ...]], None]  # called under the lock with the messages that are due


class Records(Protocol):
    """Storage of a family that survives its process."""

    def add(self, label: str, n: int) -> None:
        """Raises InvalidParameter if it cannot count that far; then nothing has changed."""

    def rebase(self, counts: Mapping[str, int], total: int) -> None:
        """Begin an incarnation that has counted so much."""

    def free(self) -> None:
        """Everything is delivered, and nothing more is counted."""


class LocalFamily:
    """Threads that count, and the owner, take the lock.

    A signal handler or a finaliser may count while the thread that it interrupts is in here. Then the events wait until
    that thread has finished what it does.
    """

    def __init__(
        self,
        key: Key,
        rule: FamilyRule,
        cap: int,
        lock: RLock,
        deliver: Deliver,
        new_records: Callable[[], Records] | None = None,
        counts: Mapping[str, int] | None = None,
        total: int = 0,
    ) -> None:
        self.key = key
        self.name = key.name
        self.rule = rule
        self.cap = cap
        self._most = cap  # labels: the cap, or fewer if the coordinator says so
        self.open = True
        self._lock = lock
        self._deliver = deliver
        self._new_records = new_records
        self._records = None if new_records is None else new_records()
        self._site = rule.site(str(key), cap, counts, total)
        self._earlier: Tally[str] = Tally()  # counts that earlier incarnations of this process have delivered
        self._earlier_total = 0
        self._changes = Reentrant()
        self._waiting: deque[tuple[str, int]] = deque()  # events that came while it was changed

    def __repr__(self) -> str:
        return f"<LocalFamily {str(self.key)!r}: {self.count:,} counted, {self._site.labels} labels>"

    # For the program

    def add(self, label: str, n: int = 1) -> None:
        require_label(label)
        require_increment(n)
        self._add(label, n)

    def add_overflow(self, n: int = 1) -> None:
        """Count events of labels beyond the cap of the program."""
        require_increment(n)
        self._add(OVERFLOW, n)

    def _add(self, label: str, n: int) -> None:
        with self._lock:
            if not self.open:
                raise InvalidParameter("counter", self.name, "a counter of a client that has not been closed")
            if self._changes.busy:
                self._waiting.append((label, n))
                self._changes.defer(self._count_waiting)
            else:
                self._changes.run(self._count, label, n)

    def _count_waiting(self) -> None:
        self._changes.run(self._count_all_waiting)

    def _count_all_waiting(self) -> None:
        while self._waiting:
            self._count(*self._waiting.popleft())

    def _count(self, label: str, n: int) -> None:
        label = self._site.home(label) if label else label
        if self._records is not None:
            self._records.add(label, n)
        messages = self._site.add(label, n) if label else self._site.add_overflow(n)
        if messages:
            self._deliver(self.key, messages)

    @property
    def count(self) -> int:
        """The number of events this process has counted."""
        with self._lock:
            return self._earlier_total + self._site.total + sum(n for _, n in self._waiting)

    @property
    def counts(self) -> dict[str, int]:
        """By label; of this incarnation."""
        with self._lock:
            return self._site.counts

    def count_of(self, label: str) -> int:
        with self._lock:
            return (
                self._earlier[label] + self._site.count_of(label) + sum(n for each, n in self._waiting if each == label)
            )

    # For the owner, which holds the lock

    @property
    def active(self) -> bool:
        return self._site.active

    def resume(self) -> tuple[Totals, tuple[UpMessage, ...]]:
        """The messages that begin a new connection."""
        first, *rest = self._changes.run(self._site.resume)
        if not isinstance(first, Totals):
            raise TypeError(first)
        return first, tuple(rest)

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        return self._changes.run(self._site.receive, message)

    def leave(self) -> tuple[tuple[UpMessage, ...], Totals]:
        """All that was not reported, and what goes into the `FamilyLeave`."""
        *reports, last = self._changes.run(self._site.leave)
        if not isinstance(last, Totals):
            raise TypeError(last)
        return tuple(reports), last

    def renew(self, known: KnownFamily | None) -> None:
        """Continue as a new incarnation with the events that are not known; None: nothing is."""
        self._changes.run(self._restart, known or KnownFamily())

    def reset(self) -> None:
        """Begin again from zero."""
        self._changes.run(self._restart, KnownFamily(complete=True))

    def limit_labels(self, cap: int) -> None:
        """Count at most so many labels by name from now on, beside those that it has. A distribution has few."""
        if self.rule.kind == LABELS:
            self._most = self._site.cap = min(cap, self.cap)

    def member(self) -> FamilyMember:
        return FamilyMember(self)

    def after_fork(self) -> None:
        self._changes = Reentrant()
        self._records = None if self._new_records is None else self._new_records()
        self._waiting.clear()
        self._earlier.clear()
        self._earlier_total = 0
        self._most = self.cap
        self._site = self.rule.site(str(self.key), self.cap)

    def close(self) -> None:
        self.open = False

    def forget(self) -> None:
        if self._records is not None:
            self._records.free()

    def _restart(self, known: KnownFamily) -> None:
        """With the events that are not known."""
        counts = {label: n - known.counts.get(label, 0) for label, n in self._site.counts.items()}
        rest = {} if known.complete else {label: n for label, n in counts.items() if n > 0}
        total = 0 if known.complete else max(0, self._site.total - known.total)
        self._earlier.update({label: n - rest.get(label, 0) for label, n in self._site.counts.items()})
        self._earlier_total += self._site.total - total
        self._site = self.rule.site(str(self.key), self._most, rest, total)
        if self._records is not None:
            self._records.rebase(rest, total)


class LocalFamilyWindows(LocalWindows[LocalFamily]):
    """A program calls `add`. Windows are not announced: a family counts each from nothing, so that it has nothing to
    learn from the coordinator before.
    """

    __slots__ = ("cap", "name", "rule")

    def __init__(
        self,
        key: Key,
        rule: FamilyRule,
        cap: int,
        spread: float,
        lock: RLock,
        clock: Callable[[], float],
        new: Callable[[Key], LocalFamily],
        remove: Callable[[Key], None],
    ) -> None:
        super().__init__(key, spread, lock, clock, new, remove)
        self.name = key.name
        self.rule = rule
        self.cap = cap

    def __repr__(self) -> str:
        return f"<LocalFamilyWindows {self.name!r}: {self.count:,} counted in the present window>"

    def add(self, label: str, n: int = 1) -> None:
        with self._lock:
            self._enter().add(label, n)

    def add_overflow(self, n: int = 1) -> None:
        """Count events of labels beyond the cap of the program."""
        with self._lock:
            self._enter().add_overflow(n)

    @property
    def count(self) -> int:
        """The number of events this process has counted in the current window."""
        with self._lock:
            present = self._present
            return 0 if present is None else present.count

    def count_of(self, label: str) -> int:
        with self._lock:
            present = self._present
            return 0 if present is None else present.count_of(label)


AnyLocalFamily = LocalFamily | LocalFamilyWindows


class LabelOfFamily:
    """One combination of labels, as a `Countable`. The labels are those of a series name, without the counter's."""

    __slots__ = ("_family", "_label")

    def __init__(self, family: AnyLocalFamily, series: str) -> None:
        self._family = family
        self._label = label_of_series(family.name, series)

    def add(self, n: int = 1) -> None:
        if self._label == OVERFLOW:
            self._family.add_overflow(n)
        else:
            self._family.add(self._label, n)

    @property
    def counted(self) -> int:
        """The events of this combination of labels, in this process."""
        return self._family.count_of(self._label)


class ClientDistribution:
    """Values that this process observes, from `Client.distribution`. `observe` never blocks on the network."""

    def __init__(self, family: AnyLocalFamily) -> None:
        self.name = family.name
        self._family = family
        self._buckets = family.rule.buckets

    def __repr__(self) -> str:
        return f"<Distribution {self.name!r}: {self.count:,} observed here>"

    def observe(self, value: float, n: int = 1) -> None:
        """Count `n` observations of a value: a finite number of at least 0."""
        self._family.add(self._buckets.label(value), n)

    @property
    def count(self) -> int:
        """Values this process has observed; with windows, in the current one."""
        return self._family.count
