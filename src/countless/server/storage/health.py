"""The state of saving, for everything that shows an answer; and errors of SQLite in an operator's words.

An answer is shown when it is saved. So while saves fail, or one takes long, the answers that are shown are those of the
last save: they must say so.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from countless.core.answer import State
from countless.server.timings import Timings

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
        self.save_seconds = Timings()  # that saves took
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


# One line with the file and the remedy

_MEANINGS = {
    "SQLITE_FULL": "cannot be written, because the disk is full: free some space on it",
    "SQLITE_CORRUPT": "is damaged: stop the coordinator, and restore a copy with: countless restore FILE",
    "SQLITE_NOTADB": "is damaged, or not a database of Countless: restore a copy with: countless restore FILE",
    "SQLITE_READONLY": "cannot be written: give this user write access to the file and its directory",
    "SQLITE_CANTOPEN": "cannot be opened: give this user write access to the file and its directory",
    "SQLITE_PERM": "cannot be opened: give this user write access to the file and its directory",
    "SQLITE_BUSY": "is locked by another process for more than 10 s: end the program that holds it",
    "SQLITE_IOERR": "cannot be read or written: is the disk full? Else look for its errors in the system's log",
}
_UNWRITABLE = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")


def explained(path: Path | None, error: sqlite3.Error) -> str:
    """
    >>> explained(Path("state.sqlite"), sqlite3.OperationalError("unknown"))
    'state.sqlite cannot be used: unknown'
    """
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])  # SQLITE_IOERR_FSYNC is an SQLITE_IOERR
    meaning = _MEANINGS.get(name)
    if name in _UNWRITABLE and path is not None and is_read_only(path):
        meaning = "cannot be written, because its file system is read-only: look for errors in the system's log"
    return f"{path} {meaning} ({error})" if meaning else f"{path} cannot be used: {error}"


def is_read_only(path: Path) -> bool:
    """Nothing can be written on the file system that has it, as after errors of a disk."""
    try:
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def damaged(path: Path | None, error: Exception) -> str:
    return f"{path} {_MEANINGS['SQLITE_CORRUPT']} ({type(error).__name__}: {error})"
