"""Below the floor: while the total is less than the floor, every site reports once in each step, at its own phase.

A counter with a floor promises |answer - n| <= alpha * max(n, floor). So while n < floor, all sites together may keep
2 alpha * floor events to themselves, whatever n is. With k sites that is a step of floor(2 alpha * floor / k) + 1, and
at most floor / step + k / 2 + 1 reports until the total has reached the floor: there the scheme of the counter takes
over. There is no randomness here, so this is certain, against every adversary (design/proofs/windows.md).

The phases of the slots are spread evenly over the step. Otherwise sites with the same traffic, which all begin at the
edge of a window, would all report in the same second, again and again.
"""

from collections.abc import Sequence

from countless.core.answer import midpoint
from countless.core.estimator import Effect, Estimator, RoundContext, RoundSetup
from countless.core.ledger import Entry
from countless.core.parameters import exact_fraction
from countless.core.triggers import OffsetMultiple, Trigger

NAME = "floor"


class BelowFloor(Estimator):
    """A site's count lies between its last report and `step - 1` more. Publish the middle of what is allowed.

    Any value from (sum of largest counts) - alpha * floor to (sum of reports) + alpha * floor is within alpha * floor
    of every total that the reports allow.
    """

    def __init__(self, step: int, slots: int, alpha: float, floor: int) -> None:
        self._step, self._slots = step, slots
        self._hidden = step - 1  # what a site may have counted beyond its last report
        self._part, self._unit = exact_fraction(alpha).as_integer_ratio()
        self._floor = floor
        self._least = self._most = 0

    @property
    def known(self) -> tuple[int, int]:
        return self._least, self._most

    def trigger(self, slot: int) -> Trigger:
        return OffsetMultiple(self._step, slot * self._step // self._slots)

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        self._least = departed + sum(entry.round_start for entry in entries)
        self._most = self._least + self._hidden * len(entries)
        self._update_estimate()

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        return self._add(entry.reported - before, 0)

    def join(self, entry: Entry) -> None:
        self._add(entry.round_start, self._hidden)

    def leave(self, entry: Entry, before: int) -> Effect | None:
        return self._add(entry.reported - before, -self._hidden)

    def _add(self, known: int, hidden: int) -> Effect | None:
        self._least += known
        self._most += known + hidden
        return self._update_estimate()

    def _update_estimate(self) -> Effect | None:
        allowed = self._part * self._floor
        low, high = self._unit * self._most - allowed, self._unit * self._least + allowed
        self.estimate = midpoint(low, high, self._unit)
        return Effect.END_ROUND if self._least >= self._floor else None


def open_below_floor(context: RoundContext, floor: int) -> RoundSetup | None:
    """None if the total has reached the floor, or if sites may not keep anything to themselves."""
    if context.total >= floor:
        return None
    alpha = exact_fraction(context.alpha)
    slots = context.slots
    step = int(2 * alpha * floor / slots) + 1
    return None if step == 1 else RoundSetup(NAME, BelowFloor(step, slots, context.alpha, floor), slots)
