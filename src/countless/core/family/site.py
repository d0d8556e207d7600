"""The sites of families: they count labels, and report a label when it has grown by a step.

Every input returns the messages it causes.

| received                       | effect                                                                        |
|--------------------------------|-------------------------------------------------------------------------------|
| `SetSteps` of an earlier round | none                                                                          |
| `SetSteps` again               | none; a `Totals` to confirm                                                     |
| `SetSteps`                     | adopted; labels that have grown by the step are reported; a `Totals` to confirm |
| `Resend`                       | every label that was reported before, again                                   |

On a new connection the owner sends `resume()`.
"""

from collections.abc import Mapping

from countless.core.family.messages import OVERFLOW, DownMessage, LabelReport, Resend, Steps, Totals, UpMessage
from countless.core.site import require_increment
from countless.errors import InvalidParameter, ProtocolError

LABEL_CAP = 100_000
MAX_COUNTS = 1_000  # in one report
NO_MESSAGES: tuple[UpMessage, ...] = ()


def require_label(label: object) -> None:
    if not isinstance(label, str) or not label:
        raise InvalidParameter("label", label, "a string that is not empty")


class FamilySite:
    """One family at one site. It counts at most `cap` labels by name; the events of others are in `OVERFLOW`.

    `counts` and `total` are what it begins with: events that were counted before, and not reported under its id.

    >>> site = FamilySite("requests")
    >>> site.add("a", 3)
    (LabelReport(family='requests', round=0, counts=(('a', 3),), total=3),)
    """

    __slots__ = ("_pending", "_pending_total", "_reported", "cap", "family", "reported", "round", "steps", "total")

    def __init__(
        self, family: str, *, cap: int = LABEL_CAP, counts: Mapping[str, int] | None = None, total: int = 0
    ) -> None:
        self.family = family
        self.cap = cap
        self.round = 0
        self.steps = Steps()
        self.total = total
        self.reported = 0  # the sum over all labels of what was reported
        self._reported: dict[str, int] = {}  # the last count that was reported, of labels that were
        self._pending = dict(counts or {})  # the events since then, of every label
        self._pending_total = sum(
            self._pending.values()
        )  # the events of all labels since the coordinator was sent the total

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.family!r}: {self.total} events, {self.labels} labels>"

    @property
    def labels(self) -> int:
        """The number of labels it counts by name."""
        return len(self._pending) - (OVERFLOW in self._pending)

    @property
    def active(self) -> bool:
        """True if there is anything to report, or was."""
        return bool(self.total or self._pending)

    def count_of(self, label: str) -> int:
        return self._reported.get(label, 0) + self._pending.get(label, 0)

    @property
    def counts(self) -> dict[str, int]:
        """The count of every label."""
        return {label: self.count_of(label) for label in self._pending}

    def home(self, label: str) -> str:
        """The label under which it counts the events of a label."""
        return label if label in self._pending or self.labels < self.cap else OVERFLOW

    def add(self, label: str, n: int = 1) -> tuple[UpMessage, ...]:
        """Count `n` more events of a label."""
        require_label(label)
        require_increment(n)
        label = self.home(label)
        self.total += n
        return self._count(label, n)

    def add_overflow(self, n: int = 1) -> tuple[UpMessage, ...]:
        """Count events whose labels are beyond a cap of the owner."""
        require_increment(n)
        self.total += n
        return self._count(OVERFLOW, n)

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        if message.family != self.family:
            raise ProtocolError(f"a message for family {message.family!r} reached a site of {self.family!r}")
        if isinstance(message, Resend):
            return self._resend()
        if message.round < self.round:
            return NO_MESSAGES
        due = NO_MESSAGES
        if message.round > self.round:
            self.round, self.steps = message.round, message.steps
            due = self._start_round()
        return (*due, self.sync()) if message.confirm else due

    def resume(self) -> tuple[UpMessage, ...]:
        """For a new connection: a `Totals`, which the owner gives to `FamilyCoordinator.join`, and what follows it."""
        return self.sync(), *self._start_round()

    def sync(self) -> Totals:
        self._pending_total = 0
        return Totals(self.family, self.round, self.steps, self.total, self.reported)

    def leave(self) -> tuple[UpMessage, ...]:
        """All that was not reported, and a `Totals`, which the owner gives to `FamilyCoordinator.leave`."""
        return (*self._report(self._grown(1)), self.sync())

    def _count(self, label: str, n: int) -> tuple[UpMessage, ...]:
        self._pending[label] = pending = self._pending.get(label, 0) + n
        self._pending_total += n
        if pending < self.steps.label and self._pending_total < self.steps.total:
            return NO_MESSAGES
        return self._report([label])

    def _start_round(self) -> tuple[UpMessage, ...]:
        """New steps are in force: report what has grown by them."""
        return self._report(self._grown(self.steps.label))

    def _resend(self) -> tuple[UpMessage, ...]:
        return self._report(list(self._reported))

    def _grown(self, by: int) -> list[str]:
        return [label for label, pending in self._pending.items() if pending >= by]

    def _report(self, labels: list[str]) -> tuple[LabelReport, ...]:
        if not labels:  # nothing is sent, so the total stays pending
            return ()
        for label in labels:
            self._credit(label, self._pending[label])
            self._pending[label] = 0
        self._pending_total = 0
        return self._reports(labels)

    def _credit(self, label: str, n: int) -> None:
        self._reported[label] = self._reported.get(label, 0) + n
        self.reported += n

    def _reports(self, labels: list[str]) -> tuple[LabelReport, ...]:
        counts = tuple((label, self._reported[label]) for label in labels)
        parts = (counts[start : start + MAX_COUNTS] for start in range(0, len(counts), MAX_COUNTS))
        return tuple(LabelReport(self.family, self.round, part, self._reported_total) for part in parts)

    @property
    def _reported_total(self) -> int:
        return self.total
