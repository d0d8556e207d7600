"""The estimator of `blocks` and `sampled`: the total at the round's start plus one step for each crossing."""

from collections.abc import Sequence

from countless.core.estimator import Effect, Estimator
from countless.core.ledger import Entry
from countless.core.triggers import BernoulliSampling, OncePerBlock, Trigger


class CrossingEstimator(Estimator):
    """N0 + step * (crossings + shift), until `reports` crossings have been counted."""

    def __init__(self, trigger: OncePerBlock | BernoulliSampling, reports: int, shift: int = 0) -> None:
        self._trigger = trigger
        self._step = trigger.step
        self._left = reports
        self._shift = shift

    def trigger(self, slot: int) -> Trigger:
        return self._trigger

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        self.estimate: int = departed + sum(entry.round_start for entry in entries) + self._step * self._shift

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        """One step for each crossing. The last one is not published: the plan covers those before it, and the
        synchronisation that it starts tells the total exactly.
        """
        self._left -= crossings
        if self._left <= 0:
            return Effect.END_ROUND
        self.estimate += self._step * crossings
        return None

    def join(self, entry: Entry) -> None:
        """The count that a joining site brings is known exactly."""
        self.estimate += entry.round_start

    def on_late_start(self, entry: Entry, before: int, gain: int) -> Effect | None:
        """What an unreachable site counted before it adopted its trigger is known exactly."""
        self.estimate += gain
        return None
