"""The items of families: the four messages of `countless.core.family.messages`, and what a connection needs besides.

The names of labels are sent once on a connection: they are numbered in the order in which `FamilyLabels` lists them,
from 1; number 0 is the overflow label. A report has pairs of a number and a count, one after the other.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from countless.core.family.messages import OVERFLOW, DownMessage, LabelReport, Resend, SetSteps, Steps, Totals
from countless.core.family.rule import FamilyRule
from countless.core.family.site import MAX_COUNTS
from countless.errors import ProtocolError

MAX_LABELS_BYTES = 1 << 16  # of the names in one item


class FamilyJoin(NamedTuple):
    """Up: the site counts labels of this family; its rule, and a `Totals`."""

    family: str
    kind: str
    epsilon: float
    accuracy: float
    round: int
    label_step: int
    total_step: int
    total: int
    reported: int


class FamilyLabels(NamedTuple):
    """Up: names that get the next numbers, on this connection."""

    family: str
    labels: tuple[str, ...]


class FamilyReport(NamedTuple):
    """Up: the number and the count of labels, and the count of all labels together."""

    family: str
    round: int
    total: int
    counts: tuple[int, ...]


class FamilySync(NamedTuple):
    """Up: the steps in force, the exact count of all labels together, and the sum of all counts in reports."""

    family: str
    round: int
    label_step: int
    total_step: int
    total: int
    reported: int


class FamilyLeave(NamedTuple):
    """Up: a `FamilySync`, after everything was reported: the site counts nothing more."""

    family: str
    round: int
    label_step: int
    total_step: int
    total: int
    reported: int


class FamilySteps(NamedTuple):
    """Down: report at these steps from now on, and if `confirm`, reply with a `FamilySync`."""

    family: str
    round: int
    label_step: int
    total_step: int
    confirm: bool


class FamilyResend(NamedTuple):
    """Down: a report was lost; report all labels again."""

    family: str


class FamilyLeaveAck(NamedTuple):
    """Down: everything that the site has counted is on the disk."""

    family: str


class FamilyReset(NamedTuple):
    """Down: the family was deleted. Begin again from zero."""

    family: str


class FamilyRejected(NamedTuple):
    """Down: the coordinator does not count this family."""

    family: str
    reason: str


class LabelCap(NamedTuple):
    """Down: count at most so many labels of each family by name, on this connection.

    Labels that the site counts by name already are counted on; the events of others are in the overflow label. It does
    not hold for distributions.
    """

    cap: int


class KnownLabels(NamedTuple):
    """Down, before `IncarnationRetired`: counts of the incarnation that are known; there may be several of a family.

    `complete`: it had left the family, so that everything is known.
    """

    family: str
    total: int
    complete: bool
    label_counts: tuple[tuple[str, int], ...]


FamilyUpItem = FamilyJoin | FamilyLabels | FamilyReport | FamilySync | FamilyLeave
FamilyDownItem = FamilySteps | FamilyResend | FamilyLeaveAck | FamilyReset | FamilyRejected
UP_ITEMS = (FamilyJoin, FamilyLabels, FamilyReport, FamilySync, FamilyLeave)
DOWN_ITEMS = (FamilySteps, FamilyResend, FamilyLeaveAck, FamilyReset, FamilyRejected)


@dataclass(frozen=True, slots=True)
class KnownFamily:
    """The counts of a family that the coordinator knew when it retired an incarnation."""

    total: int = 0
    complete: bool = False
    counts: dict[str, int] = field(default_factory=dict)

    def merged(self, item: KnownLabels) -> "KnownFamily":
        counts = {**self.counts, **dict(item.label_counts)}
        return KnownFamily(max(self.total, item.total), self.complete or item.complete, counts)


# From and to the messages of the core


def join_item(rule: FamilyRule, sync: Totals) -> FamilyJoin:
    return FamilyJoin(
        family=sync.family,
        kind=rule.kind,
        epsilon=rule.epsilon,
        accuracy=rule.accuracy,
        round=sync.round,
        label_step=sync.steps.label,
        total_step=sync.steps.total,
        total=sync.total,
        reported=sync.reported,
    )


def sync_item(sync: Totals) -> FamilySync:
    return FamilySync(sync.family, sync.round, sync.steps.label, sync.steps.total, sync.total, sync.reported)


def sync_of(item: FamilyJoin | FamilySync | FamilyLeave) -> Totals:
    if not item.label_step or not item.total_step:
        raise ProtocolError(f"family {item.family!r}: a step is at least 1")
    return Totals(item.family, item.round, Steps(item.label_step, item.total_step), item.total, item.reported)


def report_items(
    family: str, round: int, total: int, counts: Mapping[str, int], numbers: dict[str, int]
) -> Iterator[FamilyLabels | FamilyReport]:
    """Names that have no number yet get one in `numbers`, and come first."""
    new = [label for label in counts if label not in numbers and label != OVERFLOW]
    for label in new:
        numbers[label] = len(numbers) + 1
    for labels in _split(new):
        yield FamilyLabels(family, labels)
    pairs = [(0 if label == OVERFLOW else numbers[label], count) for label, count in counts.items()]
    for start in range(0, len(pairs), MAX_COUNTS):
        yield FamilyReport(family, round, total, tuple(chain(*pairs[start : start + MAX_COUNTS])))


def report_of(item: FamilyReport, labels: list[str]) -> LabelReport:
    """`labels` by number."""
    numbers, counts = item.counts[::2], item.counts[1::2]
    if len(numbers) != len(counts) or any(number >= len(labels) for number in numbers):
        raise ProtocolError(f"family {item.family!r}: a report has a label without a name, or without a count")
    pairs = tuple((labels[number], n) for number, n in zip(numbers, counts, strict=True))
    return LabelReport(item.family, item.round, pairs, item.total)


def down_item(message: DownMessage) -> FamilySteps | FamilyResend:
    if isinstance(message, Resend):
        return FamilyResend(message.family)
    return FamilySteps(message.family, message.round, message.steps.label, message.steps.total, message.confirm)


def down_message(item: FamilySteps | FamilyResend) -> DownMessage:
    if isinstance(item, FamilyResend):
        return Resend(item.family)
    if not item.label_step or not item.total_step:
        raise ProtocolError(f"family {item.family!r}: a step is at least 1")
    return SetSteps(item.family, item.round, Steps(item.label_step, item.total_step), item.confirm)


def known_items(family: str, known: KnownFamily) -> Iterator[KnownLabels]:
    for labels in _split(known.counts) or [()]:
        pairs = tuple((label, known.counts[label]) for label in labels)
        yield KnownLabels(family, known.total, known.complete, pairs)


def _split(labels: Iterable[str]) -> list[tuple[str, ...]]:
    """In parts that fit into a frame."""
    parts: list[list[str]] = []
    size = MAX_LABELS_BYTES
    for label in labels:
        size += len(label.encode()) + 40  # with a count
        if size > MAX_LABELS_BYTES or not parts:
            parts.append([])
            size = len(label.encode()) + 40
        parts[-1].append(label)
    return [tuple(part) for part in parts]
