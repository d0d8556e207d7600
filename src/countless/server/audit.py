"""The audit log: who changed what, one JSON object for each line of `audit.log` in the state directory; and who was
refused, in `refused.log`, so that strangers cannot replace what is in `audit.log` with their entries. The coordinator
also sends the entries to its log.

Commands that change the state directory without the coordinator, such as `countless token`, append to the same file.
"""

import fcntl
import getpass
import logging
import os
from collections.abc import Callable
from errno import ENOSPC
from io import FileIO
from pathlib import Path
from time import time
from typing import Any

import msgspec

from countless.server.logs import AUDIT, timestamp
from countless.server.storage.backup import AUDIT_FILE
from countless.token_file import ensure_private

log = logging.getLogger(AUDIT)

REFUSED_FILE = "refused.log"  # in state_dir, as AUDIT_FILE
MAX_FILE_BYTES = 10_000_000  # then audit.log becomes audit.log.1, and the former audit.log.1 is deleted
REPEAT_S = 60.0  # a caller that is refused again and again has one line in this time
MAX_REFUSALS = 60  # lines in this time, of all callers: refusals must not fill the disk


class AuditLog:
    """`directory` is None for a coordinator without a state directory: entries go to its log only.

    `submit` runs the writing, elsewhere if it must not block: it is given a function.
    """

    def __init__(
        self,
        directory: Path | None,
        submit: Callable[[Callable[[], None]], object] = lambda write: write(),
        clock: Callable[[], float] = time,
    ) -> None:
        self._directory = directory
        self._submit = submit
        self._clock = clock
        self._written: set[tuple[str, str]] = set()  # addresses and reasons, in the present minute
        self._unwritten = 0  # refusals in the present minute that have no entry
        self._minute = 0.0

    def record(self, event: str, who: str, **fields: Any) -> None:
        """Never raises because of the file: the log says if it cannot be written."""
        self._record(AUDIT_FILE, event, who, fields)

    def write(self, event: str, who: str, **fields: Any) -> None:
        """To the file only."""
        self._write(AUDIT_FILE, event, who, fields)

    def refused(self, address: str, reason: str) -> None:
        """One entry for each address and reason in a minute; the next minute begins with how many had none.

        The reason must not contain what the caller chose: each text would have an entry.
        """
        now = self._clock()
        if not 0 <= now - self._minute < REPEAT_S:
            if self._unwritten:
                self._record(REFUSED_FILE, "refused again", "these and other callers", {"times": self._unwritten})
            self._written, self._unwritten, self._minute = set(), 0, now
        if (address, reason) in self._written or len(self._written) >= MAX_REFUSALS:
            self._unwritten += 1
        else:
            self._written.add((address, reason))
            self._record(REFUSED_FILE, "refused", address, {"reason": reason})

    def _record(self, file: str, event: str, who: str, fields: dict[str, Any]) -> None:
        known = {name: value for name, value in fields.items() if value not in (None, "")}
        shown = "".join(f" {name}={value!r}" for name, value in known.items())
        log.info("%s by %s%s", event, who, shown, extra={"fields": {"event": event, "who": who, **known}})
        self._write(file, event, who, known)

    def _write(self, file: str, event: str, who: str, fields: dict[str, Any]) -> None:
        if self._directory is not None:
            path = self._directory / file
            line = msgspec.json.encode({"time": timestamp(self._clock()), "event": event, "who": who, **fields}) + b"\n"
            self._submit(lambda: _append(path, line))


def _append(path: Path, line: bytes) -> None:
    try:
        with _locked(path) as file:
            end = os.fstat(file.fileno()).st_size
            problem = None if file.write(line) == len(line) else os.strerror(ENOSPC)
            if problem:
                file.truncate(end)  # the next entry must have a line of its own
    except OSError as error:
        problem = str(error)
    if problem:
        log.warning("audit log not written: file=%s error=%s", path, problem)


def _locked(path: Path) -> FileIO:
    """The file at its end, with a lock: several processes write to it, and one of them may just have renamed it."""
    while True:
        ensure_private(path)
        file = FileIO(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                if file.tell() < MAX_FILE_BYTES:
                    return file
                path.replace(path.with_name(f"{path.name}.1"))
        except BaseException:
            file.close()
            raise
        file.close()


def shell_user() -> str:
    """The user who runs this command, for the audit log.

    >>> shell_user().startswith("user ")
    True
    """
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        name = str(os.getuid())
    behind = os.environ.get("SUDO_USER", "")
    return f"user {name} (sudo by {behind})" if behind and behind != name else f"user {name}"
