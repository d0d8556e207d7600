"""What a family answers: intervals for labels and for the total, and the labels above a share of the total."""

from typing import NamedTuple

from countless.core.answer import State


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
