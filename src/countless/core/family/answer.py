"""What a family answers: intervals for labels and for the total, and the labels above a share of the total."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from countless.core.answer import State
from countless.core.family.messages import OVERFLOW, Steps
from countless.errors import InvalidParameter


class LabelCount(NamedTuple):
    """The count of a label, or with the label None of all labels together: lower <= truth <= upper."""

    label: str | None
    estimate: float
    lower: int
    upper: int

    def contains(self, count: int) -> bool:
        return self.lower <= count <= self.upper


class Top(NamedTuple):
    """The labels that may have a share of the total, the largest first.

    A label that is beyond a cap is not listed: `overflow` has the events of all of these together.
    """

    share: float
    labels: tuple[LabelCount, ...]
    overflow: LabelCount
    total: LabelCount
    state: State


class LabelCounts(NamedTuple):
    """What is known of a family at a moment; sites may have counted `held_back` more of one label, and of all."""

    counts: Mapping[str, int]
    known_total: int
    held_back: Steps
    state: State

    def answer(self, label: str) -> LabelCount:
        """The count of a label. Its events may be in the overflow, so the upper bound includes that."""
        overflow = 0 if label == OVERFLOW else self.counts.get(OVERFLOW, 0)
        return interval(label, self.counts.get(label, 0), self.held_back.label, overflow)

    def total(self) -> LabelCount:
        return interval(None, self.known_total, self.held_back.total)

    def top(self, share: float) -> Top:
        """Every label that has this share of the total, and others that may have it."""
        unseen = self.held_back.label + self.counts.get(OVERFLOW, 0)
        return top_of(share, self.counts, unseen, self.answer, self.total(), self.state)


def interval(label: str | None, known: int, held_back: int, overflow: int = 0) -> LabelCount:
    return LabelCount(label, known + held_back / 2 if held_back else known, known, known + held_back + overflow)


def top_of(
    share: float,
    counts: Mapping[str, int],
    unseen: int,
    answer: Callable[[str], LabelCount],
    total: LabelCount,
    state: State,
) -> Top:
    """`unseen`: so many events more than are known any label may have."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InvalidParameter("share", share, "a number from 0 to 1, 0 excluded")
    least = max(1, ceil(Fraction(repr(share)) * total.lower))
    listed = [answer(label) for label, known in counts.items() if label and known + unseen >= least]
    labels = sorted(listed, key=lambda each: (-each.estimate, each.label))
    return Top(share, tuple(labels), answer(OVERFLOW), total, state)
