"""The counts and budgets of one incarnation in a memory-mapped file, which survives `kill -9`.

The pages of such a file belong to the operating system: what was stored is there for the next process that opens the
file, however the process ended. (A power cut may lose it: nothing here waits for the disk.)

The file is an array of 8-byte words in the byte order of the machine, in chunks of 64 KiB, none of which ever moves:

    header     magic, version, generation, incarnation 0, incarnation 1, name word, name of the site
    records    one per counter (`record.py`), label of a family (`family.py`), or budget (`budget_record.py`): a name
               word, numbers, the name

A name word is the length of the name and its CRC-32, a bit that says whether it is a budget, one that says whether it
is of a family, and one that says whether the record is free: it can be used again, for a name that takes as many words.
It is written last: from then on the record exists. No record crosses the end of a chunk, and a name word of zero ends
the records of a chunk. The version is 2 from the first budget on, 3 from the first free record on, 4 from
the first family on and 5 from the first shard on, so that an earlier Countless does not take the file for damaged.

A new incarnation of the same counters is prepared in the slots that are not active, 0 or 1, of the incarnation and of
every record; then `generation`, whose last bit is the active slot, is incremented: one store.

Behind a broker each shard may retire the incarnation on its own. Then the counters of this shard alone begin a new one,
whose number is the base of a record of the shard; all other records are copied to the slot that becomes active.

The process that counts in a file holds an flock on it, which the system releases when the process ends: if a file can
be locked, its process has ended. Lock and map have descriptors of their own: a forked child inherits both, and closes
the one of the lock to leave the lock to the parent.
"""

import fcntl
import logging
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from countless.client.durable.budget_record import NAME_OFFSET as BUDGET_NAME_OFFSET
from countless.client.durable.budget_record import BudgetRecord, present_boot
from countless.client.durable.record import MAX_COUNT, NAME_OFFSET, CounterRecord
from countless.core.budget.messages import BudgetId
from countless.core.messages import SiteId
from countless.errors import CountlessError, ProtocolError
from countless.wire.names import require_name

log = logging.getLogger("countless")

SUFFIX = ".counts"
VERSION = 5
CHUNK_BYTES = 1 << 16  # a multiple of every page size in use
_CHUNK_WORDS = CHUNK_BYTES // 8
_MAGIC = int.from_bytes(b"countles", "little")
_VERSION, _GENERATION, _INCARNATION, _SITE = 1, 2, 3, 5  # words of the header
_WITHOUT_BUDGETS, _WITH_BUDGETS, _WITH_FREE_RECORDS, _WITH_FAMILIES, _WITH_SHARDS = 1, 2, 3, 4, 5  # versions
_IS_BUDGET, _IS_FREE, _IS_FAMILY = 1 << 31, 1 << 30, 1 << 29  # in a name word


class StateError(CountlessError):
    """A state directory, or a file in it, cannot be used as it is; the message says why."""


class CountFile:
    """All counters of one incarnation. For one thread at a time, except for the sequences of the records."""

    def __init__(self, path: Path | None, lock: int | None) -> None:
        self.path = path
        self.slot = 0
        self.records: dict[str, CounterRecord] = {}
        self.budgets: list[BudgetRecord] = []
        self.families: dict[str, CounterRecord] = {}  # of families and their labels: `family.py` has the names
        self._shards: dict[
            int, CounterRecord
        ] = {}  # of shards with an incarnation of their own: the base is its number
        self._free_records: dict[int, list[CounterRecord]] = {}  # by the words of their names
        self._free_families: dict[int, list[CounterRecord]] = {}  # likewise
        self._free_budgets: dict[int, list[BudgetRecord]] = {}  # likewise
        self._lock = lock
        self._chunks: list[memoryview] = []
        self._free = 0  # the first unused word of the last chunk

    @classmethod
    def create(cls, directory: Path, site_id: SiteId) -> "CountFile":
        path = directory / f"{site_id.incarnation:016x}{SUFFIX}"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = cls(path, _create_and_lock(path))
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
        """A substitute in memory, where a file cannot be created."""
        file = cls(None, None)
        file._grow_in_memory()
        file._write_header(site_id)
        return file

    @classmethod
    def open_orphan(cls, path: Path) -> "CountFile | None":
        """The file of a process that has ended; None if the process still runs, or if nothing is in the file."""
        try:
            file = cls(path, os.open(path, os.O_RDWR))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(file._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file._still_linked() and not file._delete_if_empty():
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
        head = self._chunks[0]
        return SiteId(_read_name(head, _SITE, _SITE + 1) or "", head[_INCARNATION + self.slot])

    @property
    def incarnations(self) -> dict[int, int]:
        """By shard, where it is not that of `site_id`."""
        return {shard: record.base for shard, record in self._shards.items()}

    def allocate(self, name: str) -> CounterRecord:
        """A record for a new counter: in memory only, with a warning, if there is no room on the disk."""
        raw = name.encode()
        free = self._free_records.get(_words_for(raw))
        if free:
            used = free.pop()
            record = CounterRecord(self, used.words, used.at)
            record.begin()
        else:
            record = CounterRecord(self, *self._reserve("counter", name, NAME_OFFSET))
        name_word = _write_name(record.words, record.at + NAME_OFFSET, raw)
        if name not in self.records:
            record.words[record.at] = name_word
            self.records[name] = record
        else:  # a signal handler has allocated it in between
            self._free_record(record, name_word)
        return self.records[name]

    def allocate_family(self, name: str) -> CounterRecord:
        """As `allocate`, for a family or one of its labels."""
        self._raise_version(_WITH_FAMILIES)
        raw = name.encode()
        free = self._free_families.get(_words_for(raw))
        if free:
            used = free.pop()
            record = CounterRecord(self, used.words, used.at)
            record.clear()
        else:
            record = CounterRecord(self, *self._reserve("family", name, NAME_OFFSET))
        record.words[record.at] = _write_name(record.words, record.at + NAME_OFFSET, raw) | _IS_FAMILY
        self.families[name] = record
        return record

    def free_family(self, name: str) -> None:
        """As `free`, for a family or one of its labels."""
        record = self.families.pop(name)
        self._raise_version(_WITH_FREE_RECORDS)
        record.words[record.at] |= _IS_FREE
        self._free_families.setdefault(_words_for(name.encode()), []).append(record)

    def free(self, name: str) -> None:
        """The counter is closed, and its count delivered."""
        record = self.records.pop(name)
        self._free_record(record, record.words[record.at])

    def _free_record(self, record: CounterRecord, name_word: int) -> None:
        self._raise_version(_WITH_FREE_RECORDS)
        record.words[record.at] = name_word | _IS_FREE
        self._free_records.setdefault(_words_of_name(name_word), []).append(record)

    def _raise_version(self, version: int) -> None:
        self._chunks[0][_VERSION] = max(version, self._chunks[0][_VERSION])

    def allocate_budget(self, budget: BudgetId, incarnation: int) -> BudgetRecord:
        """As `allocate`, for one period of a budget. A record that is free is used again."""
        raw = budget.name.encode()
        free = self._free_budgets.get(_words_for(raw))
        if free:
            record = free.pop()
            record.name = budget.name
        else:
            self._raise_version(_WITH_BUDGETS)
            record = BudgetRecord(budget.name, *self._reserve("budget", budget.name, BUDGET_NAME_OFFSET))
            self.budgets.append(record)
        record.words[record.at] = _write_name(record.words, record.at + BUDGET_NAME_OFFSET, raw) | _IS_BUDGET
        record.begin(budget.period, incarnation, present_boot())
        return record

    def free_budget(self, record: BudgetRecord) -> None:
        record.free()
        self._free_budgets.setdefault(_words_for(record.name.encode()), []).append(record)

    def _reserve(self, kind: str, name: str, name_offset: int) -> tuple[memoryview, int]:
        """Words for a new record, and the index of the first."""
        size = name_offset + _words_for(name.encode())
        if self._free + size > _CHUNK_WORDS:
            try:
                self._grow()
            except (OSError, StateError) as error:
                log.warning("%s %r and later ones are kept in memory only: %s: %s", kind, name, self.path, error)
                self._grow_in_memory()
            self._free = 0
        at = self._free
        self._free += size
        return self._chunks[-1], at

    @contextmanager
    def new_incarnation(self, incarnation: int, shard: int | None = None) -> Iterator[None]:
        """While the context lasts, every record must be rebased; with a `shard`, those of its counters and families.
        All of it takes effect when the context ends.
        """
        head, of_shard = self._chunks[0], None
        if shard is not None:
            of_shard = self._shards.get(shard) or self._allocate_shard(shard)
            for record in (*self.records.values(), *self.families.values(), *self._shards.values()):
                record.copy_slot()
        former = head[_INCARNATION + self.slot]
        self.slot ^= 1
        yield
        if of_shard is not None:
            of_shard.rebase(incarnation)
        head[_INCARNATION + self.slot] = incarnation if of_shard is None else former
        head[_GENERATION] += 1

    def _allocate_shard(self, shard: int) -> CounterRecord:
        """Until the next generation its incarnation is that of the file."""
        self._raise_version(_WITH_SHARDS)
        name = f"\n{shard}"
        record = CounterRecord(self, *self._reserve("shard", name, NAME_OFFSET))
        record.rebase(self.site_id.incarnation)
        record.words[record.at] = _write_name(record.words, record.at + NAME_OFFSET, name.encode()) | _IS_FAMILY
        self._shards[shard] = record
        return record

    def release(self) -> None:
        """Leave the file to the next process; in a forked child, to the parent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def delete(self) -> None:
        """For a file that is delivered. If it cannot be deleted it is delivered again, which changes nothing."""
        with suppress(OSError):
            if self.path is not None and self._lock is not None and self._still_linked():
                self.path.unlink()
        self.release()

    @property
    def _descriptor(self) -> int:
        if self._lock is None:
            raise StateError(f"{self.path} has been closed")
        return self._lock

    def _still_linked(self) -> bool:
        try:
            return self.path is not None and os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except OSError:
            return False

    def _grow(self) -> None:
        """Add a chunk. It is written, not left as a hole: a full disk is an error now instead of a SIGBUS later."""
        if self.path is None:
            return self._grow_in_memory()
        offset, left = len(self._chunks) * CHUNK_BYTES, CHUNK_BYTES
        while left:
            left -= os.pwrite(self._descriptor, bytes(left), offset + CHUNK_BYTES - left)
        return self._map(offset)

    def _grow_in_memory(self) -> None:
        self._chunks.append(map_words(-1, 0))

    def _map(self, offset: int) -> None:
        descriptor = os.open(self.path or "", os.O_RDWR)  # mmap keeps a duplicate of it: it must not be the lock's
        try:
            self._chunks.append(map_words(descriptor, offset))
        finally:
            os.close(descriptor)

    def _write_header(self, site_id: SiteId) -> None:
        head, raw = self._chunks[0], str(site_id.site).encode()
        head[_VERSION], head[_INCARNATION] = _WITHOUT_BUDGETS, site_id.incarnation
        head[_SITE] = _write_name(head, _SITE + 1, raw)
        head[0] = _MAGIC
        self._free = _SITE + 1 + _words_for(raw)

    def _delete_if_empty(self) -> bool:
        """A process that was killed before it wrote the header leaves zeros."""
        if os.fstat(self._descriptor).st_size > CHUNK_BYTES or any(os.pread(self._descriptor, CHUNK_BYTES, 0)):
            return False
        self.delete()
        return True

    def _read(self) -> None:
        for number in range(os.fstat(self._descriptor).st_size // CHUNK_BYTES):  # an incomplete last one is unused
            self._map(number * CHUNK_BYTES)
        head = self._chunks[0] if self._chunks else None
        if head is None or head[0] != _MAGIC:
            raise StateError(f"{self.path} is not a file of counts, or is damaged: its beginning is missing")
        if head[_VERSION] > VERSION:
            newer = f"format {head[_VERSION]}, not up to {VERSION}"
            raise StateError(f"{self.path} was written by a newer Countless ({newer})")
        self.slot = head[_GENERATION] & 1
        site = self._require(_read_name(head, _SITE, _SITE + 1), "the site's name")
        if head[_INCARNATION + self.slot] >= MAX_COUNT:
            self._require(None, "the incarnation")
        at = _SITE + 1 + _words_for(site.encode())
        for words in self._chunks:
            while at < _CHUNK_WORDS and words[at]:
                at = self._read_record(words, at)
            self._free, at = at, 0

    def _read_record(self, words: memoryview, at: int) -> int:
        """The index of the next one."""
        is_budget = bool(words[at] & _IS_BUDGET)
        name_at = at + (BUDGET_NAME_OFFSET if is_budget else NAME_OFFSET)
        what = f"record {len(self.records) + len(self.budgets) + len(self.families) + 1}"
        if name_at > _CHUNK_WORDS:
            self._require(None, what)
        if words[at] & _IS_FREE:
            return name_at + _words_of_name(words[at])
        if words[at] & _IS_FAMILY and not is_budget:
            key = self._require(_read_text(words, at, name_at), what)
            if key.startswith("\n"):
                shard = self._require(key[1:] if key[1:].isdecimal() else None, what)
                self._shards[int(shard)] = CounterRecord(self, words, at)
            else:
                self.families[key] = CounterRecord(self, words, at)
            return name_at + _words_for(key.encode())
        name = _read_name(words, at, name_at)
        if is_budget and (name is not None or not BudgetRecord("", words, at).incarnation):
            # Without a name it is free, and was getting another name of as many words.
            self.budgets.append(BudgetRecord(name or "", words, at))
            return name_at + _words_of_name(words[at])
        name = self._require(name, what)
        self.records[name] = record = CounterRecord(self, words, at)
        if record.count < 0:
            self._require(None, f"the count of {name!r}")
        return name_at + _words_for(name.encode())

    def _require(self, text: str | None, what: str) -> str:
        if text is None:
            raise StateError(f"{self.path} is damaged: {what} is invalid")
        return text


def map_words(descriptor: int, offset: int) -> memoryview:
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


def _name_length(name_word: int) -> int:
    return name_word & (_IS_FAMILY - 1)


def _words_of_name(name_word: int) -> int:
    return -(-_name_length(name_word) // 8)


def _words_for(raw: bytes) -> int:
    return -(-len(raw) // 8)


def _write_name(words: memoryview, at: int, raw: bytes) -> int:
    """The name word for it."""
    words.cast("B")[8 * at : 8 * at + len(raw)] = raw
    return crc32(raw) << 32 | len(raw)


def _read_name(words: memoryview, name_word: int, at: int) -> str | None:
    try:
        return require_name(_read_text(words, name_word, at), "name")
    except ProtocolError:
        return None


def _read_text(words: memoryview, name_word: int, at: int) -> str | None:
    length, check = _name_length(words[name_word]), words[name_word] >> 32
    raw = bytes(words.cast("B")[8 * at : 8 * at + length])
    try:
        return raw.decode() if (len(raw), crc32(raw)) == (length, check) else None
    except UnicodeDecodeError:
        return None
