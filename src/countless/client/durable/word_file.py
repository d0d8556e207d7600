"""A file of 8-byte words, mapped to memory in chunks, none of which ever moves. It has a lock.

The pages of such a file belong to the operating system: what was stored is there for the next process that opens the
file, however the process ended. (A power cut may lose it: nothing here waits for the disk.)

The process that writes to a file holds an flock on it, which the system releases when the process ends: if a file can
be locked, its process has ended. Lock and map have descriptors of their own: a forked child inherits both, and closes
the one of the lock to leave the lock to the parent.
"""

import fcntl
import logging
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from countless.errors import CountlessError

log = logging.getLogger("countless")

CHUNK_BYTES = 1 << 16  # a multiple of every page size in use
CHUNK_WORDS = CHUNK_BYTES // 8


class StateError(CountlessError):
    """A state directory, or a file in it, cannot be used as it is; the message says why."""


class WordFile:
    """Chunks of words, in a file or, without a path, in memory. After `used` words the last chunk is free."""

    def __init__(self, path: Path | None, lock: int | None) -> None:
        self.path = path
        self.chunks: list[memoryview] = []
        self.used = 0
        self._lock = lock

    @classmethod
    def create(cls, path: Path) -> Self:
        """A locked file of one chunk of zeros."""
        file = cls(path, _create_and_lock(path))
        try:
            file._grow()
        except OSError:
            file.delete()
            raise
        return file

    @classmethod
    def in_memory(cls) -> Self:
        file = cls(None, None)
        file._grow_in_memory()
        return file

    @classmethod
    def open_orphan(cls, path: Path) -> Self | None:
        """The file of a process that has ended; None if the process still runs, or if nothing is in the file."""
        try:
            file = cls(path, os.open(path, os.O_RDWR))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file._still_linked() and not file._delete_if_empty():
                for number in range(os.fstat(file.descriptor).st_size // CHUNK_BYTES):  # part of a chunk is unused
                    file._map(number * CHUNK_BYTES)
                return file
        except BlockingIOError:
            pass
        except BaseException:
            file.release()
            raise
        file.release()
        return None

    def reserve(self, what: str, size: int) -> tuple[memoryview, int]:
        """So many free words, and the index of the first: in memory, with a warning, if the disk has no room."""
        if self.used + size > CHUNK_WORDS:
            try:
                self._grow()
            except (OSError, StateError) as error:
                log.warning(
                    "file of counts not extended, new names kept in memory only: first=%s file=%s error=%s",
                    what,
                    self.path,
                    error,
                )
                self._grow_in_memory()
            self.used = 0
        at = self.used
        self.used += size
        return self.chunks[-1], at

    def clear_unused(self) -> None:
        """A process that was killed while it made a record has left a part of it, which no later record may have."""
        self.chunks[-1].cast("B")[8 * self.used :] = bytes(CHUNK_BYTES - 8 * self.used)

    def release(self) -> None:
        """Leave the file to the next process; in a forked child, to the parent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def delete(self) -> None:
        with suppress(OSError):
            if self.path is not None and self._lock is not None and self._still_linked():
                self.path.unlink()
        self.release()

    @property
    def descriptor(self) -> int:
        if self._lock is None:
            raise StateError(f"{self.path} has been closed")
        return self._lock

    def _still_linked(self) -> bool:
        try:
            return self.path is not None and os.path.samestat(self.path.stat(), os.fstat(self.descriptor))
        except OSError:
            return False

    def _delete_if_empty(self) -> bool:
        """A process that was killed before it wrote the first word leaves zeros."""
        if os.fstat(self.descriptor).st_size > CHUNK_BYTES or any(os.pread(self.descriptor, CHUNK_BYTES, 0)):
            return False
        self.delete()
        return True

    def _grow(self) -> None:
        """Add a chunk. It is written, not left as a hole: a full disk is an error now instead of a SIGBUS later."""
        if self.path is None:
            return self._grow_in_memory()
        offset, left = len(self.chunks) * CHUNK_BYTES, CHUNK_BYTES
        while left:
            left -= os.pwrite(self.descriptor, bytes(left), offset + CHUNK_BYTES - left)
        return self._map(offset)

    def _grow_in_memory(self) -> None:
        self.chunks.append(self._map_words(-1, 0))

    def _map(self, offset: int) -> None:
        descriptor = os.open(self.path or "", os.O_RDWR)  # mmap keeps a duplicate of it: it must not be the lock's
        try:
            self.chunks.append(self._map_words(descriptor, offset))
        finally:
            os.close(descriptor)

    def _map_words(self, descriptor: int, offset: int) -> memoryview:
        """A chunk of the file, or of memory if the descriptor is -1."""
        return memoryview(mmap.mmap(descriptor, CHUNK_BYTES, offset=offset)).cast("Q")


def _create_and_lock(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)  # another process has found the empty file unlocked, and deleted it
