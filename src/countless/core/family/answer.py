"""Answers of a family: intervals for labels and for the total, and the labels above a share of the total."""

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import NamedTuple

from countless.core.answer import State, worst_state
from countless.core.family.messages import OVERFLOW, Steps
from countless.core.parameters import exact_fraction
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
    """The known counts of a family at a moment; sites may hold back `held_back` more of one label, and of all.

    `missing` are the counts of windows that are not kept any more: any of their events may belong to it, too.
    """

    counts: Mapping[str, int]
    known_total: int
    held_back: Steps
    state: State
    missing: "LabelCounts | None" = None

    def answer(self, label: str) -> LabelCount:
        """The count of a label. Its events may be in the overflow, so the upper bound includes that."""
        overflow = 0 if label == OVERFLOW else self.counts.get(OVERFLOW, 0)
        missing = 0 if self.missing is None else self.missing.answer(label).upper
        return interval(label, self.counts.get(label, 0), self.held_back.label, overflow + missing)

    def total(self) -> LabelCount:
        return interval(None, self.known_total, self.held_back.total, self.most_missing)

    @property
    def most_missing(self) -> int:
        return 0 if self.missing is None else self.missing.total().upper

    def top(self, share: float, most: int | None = None) -> Top:
        """Every label that has this share of the total, and others that may have it: `top_of`."""
        every = (
            self if self.missing is None else sum_of((self, self.missing), len(self.counts) + len(self.missing.counts))
        )
        unseen = every.held_back.label + every.counts.get(OVERFLOW, 0)
        return top_of(share, every.counts, unseen, self.answer, self.total(), self.state, most)


def sum_of(parts: Iterable[LabelCounts], cap: int) -> LabelCounts:
    """Add windows that have no event in common. At most `cap` labels have their names; others go to the overflow.

    Every bound of a sum is the sum of the bounds.

    >>> hour = LabelCounts({"a": 5, "b": 1}, 7, Steps(1, 2), State.HOLDING)
    >>> sum_of([hour, hour], cap=1).answer("a")
    LabelCount(label='a', estimate=11.0, lower=10, upper=14)
    """
    counts: dict[str, int] = {}
    total = label_step = total_step = 0
    states = [State.EXACT]
    for part in parts:
        if not counts and len(part.counts) <= cap:
            counts = dict(part.counts)
        else:
            for label, n in part.counts.items():
                home = label if label in counts or len(counts) - (OVERFLOW in counts) < cap else OVERFLOW
                counts[home] = counts.get(home, 0) + n
        total += part.known_total
        label_step += part.held_back.label
        total_step += part.held_back.total
        states.append(part.state)
    return LabelCounts(counts, total, Steps(label_step, total_step), worst_state(states))


def interval(label: str | None, known: int, held_back: int, overflow: int = 0) -> LabelCount:
    return LabelCount(label, known + held_back / 2 if held_back else known, known, known + held_back + overflow)


def least_with(share: float, total: int) -> int:
    """The least count that is not 0 and has this share of a total."""
    return max(1, ceil(exact_fraction(share) * total))


def top_of(
    share: float,
    counts: Mapping[str, int],
    unseen: int,
    answer: Callable[[str], LabelCount],
    total: LabelCount,
    state: State,
    most: int | None = None,
) -> Top:
    """`unseen`: so many events more than are known any label may have. More than `most` labels are not listed at all:
    raises InvalidParameter.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InvalidParameter("share", share, "a number from 0 to 1, 0 excluded")
    least = least_with(share, total.lower)
    listed = [label for label, known in counts.items() if label and known + unseen >= least]
    if most is not None and len(listed) > most:
        raise InvalidParameter("share", share, f"larger: {len(listed)} labels may have it, and {most} can be listed")
    labels = sorted(map(answer, listed), key=lambda each: (-each.estimate, each.label))
    return Top(share, tuple(labels), answer(OVERFLOW), total, state)
