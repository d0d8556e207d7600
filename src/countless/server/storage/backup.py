"""Copies of the state file, made while a coordinator runs, and their restore.

A copy says that it is one. A coordinator that starts on it does what `--after-restore` does, until its log says that
the restore is over: also if the file was put in place by hand, and if the coordinator is restarted meanwhile.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from errno import EDQUOT, ENOSPC
from pathlib import Path
from time import time
from urllib.parse import quote

from countless.server.storage.base import StoreError, Token
from countless.server.storage.health import explained, is_read_only
from countless.server.storage.schema import is_empty
from countless.token_file import create_private, give_to_owner

AUDIT_FILE = "audit.log"  # beside a state file that was in use
_COPIED = "copied at"


def back_up(state: Path, copy: Path) -> int:
    """Write a consistent copy of the state file; its size in bytes. A copy that exists is replaced when all is written.
    Writers do not wait.
    """
    if not state.exists():
        raise StoreError(f"{state} does not exist: there is nothing to copy")
    if copy.exists():
        if not copy.is_file():
            raise StoreError(f"{copy} is not a file: choose another name")
        if copy.samefile(state):
            raise StoreError(f"{copy} is the state file itself")
        try:
            check(copy)
        except StoreError as error:  # it may be the file of another program
            raise StoreError(f"{copy} is not replaced: remove it, or choose another name; {error}") from None
    _put(_write_part(state, copy), copy)
    return copy.stat().st_size


def restore(copy: Path, state: Path, prepare: Callable[[Path], None] = lambda part: None) -> Path | None:
    """Put a copy in place of the state file, which no coordinator may use now. Returns where the former file is.

    `prepare` may change the copy before that. If something fails, the former file is where it was: without one, the
    coordinator would begin from nothing.
    """
    check(copy)
    part = _write_part(copy, state)
    try:
        prepare(part)
        _as_one_file(part)
        former = _set_aside(state)
    except StoreError:
        for path in _files_of(part):
            path.unlink()
        raise
    _put(part, state)
    return former


def require_directory(state: Path) -> None:
    """Check the directory of the state file, which need not exist yet."""
    if state.parent.exists() and not state.parent.is_dir():
        raise StoreError(f"{state.parent} is not a directory: choose another state_dir")


def require_not_lost(state: Path) -> None:
    """Without its state file a coordinator that has run before would begin from nothing, and grant budgets again."""
    require_directory(state)
    if state.exists() and state.stat().st_size:
        return
    found = f"{state} is {'empty' if state.exists() else 'missing'}"
    if part_of(state).exists():  # it was killed between its two renames: one sets the state aside
        raise StoreError(f"{found}: a countless restore was interrupted; run it again")
    if (used := state.with_name(AUDIT_FILE)).exists():
        remedy = f"restore a copy with: countless restore FILE; or remove {used} to begin from nothing"
        raise StoreError(f"{found}, and a coordinator has used it before: {remedy}")


def part_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def check(path: Path) -> None:
    """Raise StoreError unless this is a state file that can be read from its first page to its last."""
    with _opened(path) as database:
        if is_empty(database, path):
            raise StoreError(f"{path} is not a database of Countless")
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
        _require_whole(path, database)
    if found != "ok":
        text = " ".join(found.split())  # of several lines
        raise StoreError(f"{path} is damaged: {text}: use another copy, or restore one with: countless restore FILE")


def tokens_of(path: Path) -> list[Token]:
    """The tokens of a state file; none, if it is damaged or missing."""
    try:
        with _opened(path) as database:
            return [Token(*row) for row in database.execute("SELECT * FROM tokens")]
    except (StoreError, TypeError, ValueError):
        return []


def is_copy(path: Path) -> bool:
    with _opened(path) as database:
        return database.execute("SELECT 1 FROM facts WHERE name = ?", (_COPIED,)).fetchone() is not None


def end_restore(path: Path) -> None:
    """From now on the file is the state, and not a copy of it."""
    with _opened(path) as database, database:
        database.execute("DELETE FROM facts WHERE name = ?", (_COPIED,))


def _write_part(source: Path, target: Path) -> Path:
    """A copy beside the target that can be read completely. A damaged state must not replace the last good copy."""
    part = part_of(target)
    try:
        part.unlink(missing_ok=True)
        os.close(create_private(part))  # it has the digests of tokens
        with closing(_connect(source)) as database, closing(sqlite3.connect(part)) as copied:
            _require_whole(source, database)
            database.backup(copied)
            copied.execute("PRAGMA journal_mode = DELETE")  # one file, without a WAL beside it
            with copied:
                copied.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (_COPIED, int(time())))
        check(part)
        _sync(part)
    except (OSError, sqlite3.Error, StoreError) as error:
        part.unlink(missing_ok=True)
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL" or getattr(error, "errno", 0) in (ENOSPC, EDQUOT):
            raise StoreError(f"{part} cannot be written, because the disk is full: free some space ({error})") from None
        if isinstance(error, StoreError) or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            remedy = "restore an earlier copy with: countless restore FILE"
            raise StoreError(f"{source} is damaged, and {target} was not written: {remedy} ({error})") from None
        raise StoreError(f"{source} cannot be copied to {target}: {error}") from None
    return part


def _require_whole(path: Path, database: sqlite3.Connection) -> None:
    """SQLite does not see that the last page ends too early: it reads zeros there."""
    (page,) = database.execute("PRAGMA page_size").fetchone()
    if path.stat().st_size % page:
        raise StoreError(f"{path} is damaged, its end is missing: restore a copy with: countless restore FILE")


def _as_one_file(part: Path) -> None:
    """Without a WAL beside it, and on the disk."""
    try:
        with _opened(part) as database:
            database.execute("PRAGMA journal_mode = DELETE")
        _sync(part)
    except OSError as error:
        raise StoreError(f"{part} cannot be written: {error}") from None


def _put(part: Path, target: Path) -> None:
    try:
        part.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise StoreError(f"{part} cannot be renamed to {target}: {error}") from None


def _set_aside(state: Path) -> Path | None:
    """The state file, with its WAL, which belongs to it."""
    files = _files_of(state)
    if not files:
        return None
    folder = state.with_name(f"before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    try:
        folder.mkdir(mode=0o700)
        give_to_owner(folder, state.parent)
        for path in files:
            path.rename(folder / path.name)
    except OSError as error:
        raise StoreError(f"{state} cannot be set aside in {folder}: {error}") from None
    return folder


def _files_of(state: Path) -> list[Path]:
    return [path for end in ("", "-wal", "-shm") if (path := state.with_name(state.name + end)).exists()]


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise StoreError(f"{path} does not exist, or is not a file")
    try:
        with closing(_connect(path)) as database:
            yield database
    except sqlite3.Error as error:
        raise StoreError(explained(path, error)) from None


def _connect(path: Path) -> sqlite3.Connection:
    """A file that is complete, without a WAL beside it, can also be read where nothing can be written."""
    if is_read_only(path) and not path.with_name(f"{path.name}-wal").exists():
        return sqlite3.connect(f"file:{quote(str(path.absolute()))}?immutable=1", timeout=10, uri=True)
    return sqlite3.connect(path, timeout=10)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
