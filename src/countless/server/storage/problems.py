"""Errors of SQLite in an operator's words: one line with the file and the remedy."""

import os
import sqlite3
from pathlib import Path

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
