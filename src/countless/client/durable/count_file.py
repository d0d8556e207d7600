"""The counts of one life in a memory-mapped file: what `kill -9` cannot take away.

The pages of such a file belong to the system, not to the process: what was stored is there for whoever opens the file
next, however the process died. (A power cut is another matter: nothing here waits for the disk.)

The file is an array of 8-byte words in the byte order of the machine, in chunks of 64 KiB, none of which ever moves:

    header     magic, version, life, incarnation 0, incarnation 1, label, name of the site
    records    one per counter (`record.py`), beginning with a label, ending with its name

A label is the length of the name and its CRC-32. It is written last: from then on the record counts. No record crosses
the end of a chunk, and a label of zero says that the chunk has no more.

A life that begins with the counters of an earlier one is prepared in the places that are not in force, 0 or 1, of the
incarnation and of every record; then `life`, whose last bit says which are, is raised: one store.

Whoever lives in a file holds an flock on it, which the system takes back when the process dies. A file that can be
locked has lost its process. Locks and maps have descriptors of their own: a forked child inherits both, and closing the
one for the lock is all it takes to leave the lock to the parent.
"""

import fcntl
import logging
import mmap
import os
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from countless.client.durable.record import MOST, NAME, Cells
from countless.core.messages import SiteId
from countless.errors import CountlessError, ProtocolError
from countless.wire.names import require_name

log = logging.getLogger("countless")

SUFFIX = ".counts"
VERSION = 1
CHUNK = 1 << 16  # bytes: a multiple of every page size in use
_MAGIC = int.from_bytes(b"countles", "little")
_LIFE, _INCARNATION, _SITE = 2, 3, 5  # words of the header


class StateError(CountlessError):
    """A state directory, or a file in it, cannot be used as it is; the message says why."""


class CountFile:
    """All counters of one life. Not for two threads at once, but for the cells."""

    def __init__(self, path: Path | None, lock: int | None) -> None:
        self.path = path
        self.page = 0
        self.cells: dict[str, Cells] = {}
        self._lock = lock
        self._chunks: list[memoryview] = []
        self._free = 0  # the next word of the last chunk that is not in use

    @classmethod
    def create(cls, directory: Path, site_id: SiteId) -> "CountFile":
        """A new file for a new life."""
        path = directory / f"{site_id.incarnation:016x}{SUFFIX}"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = cls(path, _make_and_lock(path))
            try:
                file._grow()
            except OSError:
                file.delete()
                raise
        except OSError as error:
            reason = "it is not a directory" if isinstance(error, FileExistsError) else error.strerror
            raise StateError(f"state_dir = {str(directory)!r} cannot be used: {reason}") from error
        file._write_header(site_id)
        return file

    @classmethod
    def in_memory(cls, site_id: SiteId) -> "CountFile":
        """Where counts live when there is no room for a file."""
        file = cls(None, None)
        file._grow_in_memory()
        file._write_header(site_id)
        return file

    @classmethod
    def adopt(cls, path: Path) -> "CountFile | None":
        """The file of a process that has died; None if it lives, or if there is nothing in it."""
        try:
            file = cls(path, os.open(path, os.O_RDWR))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(file._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file._is_there() and not file._tidied():
                file._read()
                return file
        except BlockingIOError:
            pass
        except BaseException:
            file.release()
            raise
        file.release()
        return None

    @property
    def site_id(self) -> SiteId:
        """The life whose counts these are."""
        head = self._chunks[0]
        return SiteId(_text(head, _SITE, _SITE + 1) or "", head[_INCARNATION + self.page])

    def allocate(self, name: str) -> Cells:
        """The cells of a new counter; if there is no room for them on the disk, in memory."""
        raw = name.encode()
        size = NAME + -(-len(raw) // 8)
        if self._free + size > CHUNK // 8:
            try:
                self._grow()
            except (OSError, StateError) as error:
                log.warning("counter %r and later ones are kept in memory only: %s: %s", name, self.path, error)
                self._grow_in_memory()
            self._free = 0
        words, at = self._chunks[-1], self._free
        _write_text(words, at, at + NAME, raw)
        self._free += size
        self.cells[name] = cells = Cells(self, words, at)
        return cells

    # Another life with the same counters: turn, settle every cell, commit

    def turn(self) -> None:
        """What is settled from now on belongs to the next life."""
        self.page ^= 1

    def commit(self, incarnation: int) -> None:
        """The next life is in force."""
        head = self._chunks[0]
        head[_INCARNATION + self.page] = incarnation
        head[_LIFE] += 1

    def begin_again(self, incarnation: int, known: dict[str, int]) -> None:
        """Another life, with what was counted beyond what is `known`: when nobody counts any more."""
        rests = {name: max(0, cells.count - known.get(name, 0)) for name, cells in self.cells.items()}
        self.turn()
        for name, cells in self.cells.items():
            cells.settle(cells.counted - rests[name])
        self.commit(incarnation)

    # The end

    def release(self) -> None:
        """Leave it to whoever comes next; in a forked child, to the parent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def delete(self) -> None:
        """All of it has been delivered. A file that cannot be deleted is delivered again, which does no harm."""
        with suppress(OSError):
            if self.path is not None and self._lock is not None and self._is_there():
                self.path.unlink()
        self.release()

    # The bytes

    @property
    def _descriptor(self) -> int:
        if self._lock is None:
            raise StateError(f"{self.path} has been closed")
        return self._lock

    def _is_there(self) -> bool:
        try:
            return self.path is not None and os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def _grow(self) -> None:
        """One more chunk, written and not left as a hole: a full disk shall say so now, not kill the process later."""
        if self.path is None:
            return self._grow_in_memory()
        offset, left = len(self._chunks) * CHUNK, CHUNK
        while left:
            left -= os.pwrite(self._descriptor, bytes(left), offset + CHUNK - left)
        return self._map(offset)

    def _grow_in_memory(self) -> None:
        self._chunks.append(memoryview(mmap.mmap(-1, CHUNK)).cast("Q"))

    def _map(self, offset: int) -> None:
        descriptor = os.open(self.path or "", os.O_RDWR)  # mmap keeps a duplicate of it: it must not be the lock's
        try:
            self._chunks.append(memoryview(mmap.mmap(descriptor, CHUNK, offset=offset)).cast("Q"))
        finally:
            os.close(descriptor)

    def _write_header(self, site_id: SiteId) -> None:
        head, raw = self._chunks[0], str(site_id.site).encode()
        head[1], head[_INCARNATION] = VERSION, site_id.incarnation
        _write_text(head, _SITE, _SITE + 1, raw)
        head[0] = _MAGIC
        self._free = _SITE + 1 + -(-len(raw) // 8)

    def _tidied(self) -> bool:
        """Whether its process died before it had begun: then the file is all zeros, and can go."""
        if os.fstat(self._descriptor).st_size > CHUNK or any(os.pread(self._descriptor, CHUNK, 0)):
            return False
        self.delete()
        return True

    def _read(self) -> None:
        for number in range(os.fstat(self._descriptor).st_size // CHUNK):  # a last one, half made, was never used
            self._map(number * CHUNK)
        head = self._chunks[0] if self._chunks else None
        if head is None or head[0] != _MAGIC:
            raise StateError(f"{self.path} is not a file of counts, or is damaged: its beginning is missing")
        if head[1] > VERSION:
            raise StateError(f"{self.path} was written by a newer Countless (format {head[1]}, not up to {VERSION})")
        self.page = head[_LIFE] & 1
        site = self._require(_text(head, _SITE, _SITE + 1), "the site's name")
        if head[_INCARNATION + self.page] >= MOST:
            self._require(None, "the incarnation")
        at = _SITE + 1 + -(-len(site.encode()) // 8)
        for words in self._chunks:
            while at < CHUNK // 8 and words[at]:
                name = self._require(_text(words, at, at + NAME), f"record {len(self.cells) + 1}")
                self.cells[name] = cells = Cells(self, words, at)
                if cells.count < 0:
                    self._require(None, f"the count of {name!r}")
                at += NAME + -(-len(name.encode()) // 8)
            at = 0

    def _require(self, text: str | None, what: str) -> str:
        if text is None:
            raise StateError(f"{self.path} is damaged: {what} makes no sense")
        return text


def _make_and_lock(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)  # an heir has tidied it away before it was locked


def _write_text(words: memoryview, label: int, at: int, raw: bytes) -> None:
    words.cast("B")[8 * at : 8 * at + len(raw)] = raw
    words[label] = crc32(raw) << 32 | len(raw)


def _text(words: memoryview, label: int, at: int) -> str | None:
    """The name behind a label; None if it is damaged."""
    length, check = words[label] & 0xFFFFFFFF, words[label] >> 32
    raw = bytes(words.cast("B")[8 * at : 8 * at + length])
    try:
        return require_name(raw.decode(), "name") if (len(raw), crc32(raw)) == (length, check) else None
    except (UnicodeDecodeError, ProtocolError):
        return None
