"""The state of saving, for everything that shows an answer.

An answer is shown when it is saved. So while saves fail, or one takes long, the answers that are shown are those of the
last save: they must say so.
"""

from collections.abc import Callable
from time import monotonic

from countless.core.answer import State

SLOW_SAVE_S = 2.0  # a save of everything that collected while the one before ran takes some tenths of a second


class SaveHealth:
    """The commit pipeline reports to it.

    >>> now = 100.0
    >>> health = SaveHealth(clock=lambda: now)
    >>> health.begin()
    >>> health.behind_s, health.shown(State.HOLDING)
    (0.0, <State.HOLDING: 'holding'>)
    >>> health.fail("disk full")
    >>> now = 130.0
    >>> health.behind_s, health.shown(State.HOLDING), health.failures
    (30.0, <State.DEGRADED: 'degraded'>, 1)
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.failing: str | None = None  # why nothing can be saved at present
        self.failures = 0  # saves that have failed
        self.on_change: Callable[[], None] = _ignore  # it begins or ends to fail
        self._clock = clock
        self._collects_since = clock()  # no change that is in no batch yet is older
        self._saved_until: float | None = None  # no change of the batch that is being saved is older

    def first_change(self) -> None:
        """Until now there was nothing to save."""
        self._collects_since = self._clock()

    def begin(self) -> None:
        """A batch was taken: later changes are not in it."""
        self._saved_until, self._collects_since = self._collects_since, self._clock()

    def fail(self, reason: str) -> None:
        before, self.failing = self.failing, reason
        self.failures += 1
        if before is None:
            self.on_change()

    def done(self) -> None:
        before, self.failing, self._saved_until = self.failing, None, None
        if before is not None:
            self.on_change()

    @property
    def behind_s(self) -> float:
        """The age of the answers that are shown: everything before is saved; 0: they are current."""
        lag_s = self.lag_s
        return lag_s if self.failing is not None or lag_s > SLOW_SAVE_S else 0.0

    @property
    def lag_s(self) -> float:
        """The wait of the oldest change, and of the messages that depend on it, if a batch is being saved; else 0."""
        return 0.0 if self._saved_until is None else self._clock() - self._saved_until

    def shown(self, state: State) -> State:
        """The state of an answer: what was counted since the last save is missing in it."""
        current = self.failing is None and not self.behind_s
        return state if current or state is State.LEARNING else State.DEGRADED


def _ignore() -> None:
    pass
