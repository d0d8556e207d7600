"""The counts and budgets of one incarnation in a memory-mapped file, which survives `kill -9`.

The file is an array of 8-byte words in the byte order of the machine, in chunks of 64 KiB (`word_file.py`):

    header     magic, version, generation, incarnation 0, incarnation 1, name word, name of the site
    records    one per counter (`record.py`), family and label (`family.py`), shard, or budget (`budget_record.py`): a
               name word, numbers, the name

The name word (`record_names.py`) is written last: from then on the record exists. A record that is free can be used
again, for a name that takes as many words. No record crosses the end of a chunk, and a name word of zero ends the
records of a chunk. A file of another version is refused.

A new incarnation of the same counters is prepared in the slots that are not active, 0 or 1, of the incarnation and of
every record; then `generation`, whose last bit is the active slot, is incremented: one store.

Behind a broker each shard may retire the incarnation on its own. Then the counters of this shard alone begin a new one,
whose number is the base of a record of the shard; all other records are copied to the slot that becomes active.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from countless.client.durable.budget_record import NAME_OFFSET as BUDGET_NAME_OFFSET
from countless.client.durable.budget_record import UNKNOWN_BOOT, BudgetRecord, boot_word
from countless.client.durable.record import MAX_COUNT, NAME_OFFSET, CounterRecord
from countless.client.durable.record_names import (
    N,
    RecordName,
    ShardName,
    freed,
    is_budget,
    is_free,
    raw_name,
    read_name,
    read_text,
    words_for,
    words_of_name,
    write_budget,
    write_name,
    write_text,
)
from countless.client.durable.word_file import CHUNK_WORDS, StateError, WordFile
from countless.core.budget.messages import BudgetId
from countless.core.messages import SiteId
from countless.wire.keys import Key

SUFFIX = ".counts"
VERSION = 7
_MAGIC = int.from_bytes(b"countles", "little")
_VERSION, _GENERATION, _INCARNATION, _SITE = 1, 2, 3, 5  # words of the header


class CountFile:
    """All counters of one incarnation. For one thread at a time, except for the sequences of the records."""

    words = WordFile

    def __init__(self, file: WordFile) -> None:
        self.slot = 0
        self.budgets: list[BudgetRecord] = []
        self._records: dict[RecordName, CounterRecord] = {}  # of a shard, the base is the number of its incarnation
        self._free: dict[tuple[type[RecordName], int], list[CounterRecord]] = {}  # by the words of their names
        self._free_budgets: dict[int, list[BudgetRecord]] = {}  # likewise
        self._file = file
        self.boot = UNKNOWN_BOOT if file.path is None else boot_word(file.descriptor)

    @classmethod
    def create(cls, directory: Path, site_id: SiteId) -> Self:
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = cls(cls.words.create(directory / f"{site_id.incarnation:016x}{SUFFIX}"))
        except OSError as error:
            reason = "it is not a directory" if isinstance(error, FileExistsError) else error.strerror
            raise StateError(f"state_dir = {str(directory)!r} cannot be used: {reason}") from error
        file._write_header(site_id)
        return file

    @classmethod
    def in_memory(cls, site_id: SiteId) -> Self:
        """A substitute in memory, where a file cannot be created."""
        file = cls(cls.words.in_memory())
        file._write_header(site_id)
        return file

    @classmethod
    def open_orphan(cls, path: Path) -> Self | None:
        """The file of a process that has ended; None if the process still runs, or if nothing is in the file."""
        words = cls.words.open_orphan(path)
        if words is None:
            return None
        file = cls(words)
        try:
            file._read()
        except BaseException:
            words.release()
            raise
        return file

    @property
    def path(self) -> Path | None:
        """None if it is in memory."""
        return self._file.path

    @property
    def _head(self) -> memoryview:
        return self._file.chunks[0]

    @property
    def site_id(self) -> SiteId:
        head = self._head
        return SiteId(read_text(head, _SITE, _SITE + 1) or "", head[_INCARNATION + self.slot])

    @property
    def incarnations(self) -> dict[int, int]:
        """By shard, where it is not that of `site_id`."""
        return {name.shard: record.base for name, record in self.records(ShardName).items()}

    def records(self, kind: type[N]) -> dict[N, CounterRecord]:
        """With names of this type."""
        return {name: record for name, record in self._records.items() if isinstance(name, kind)}

    def allocate(self, name: RecordName) -> CounterRecord:
        """A record for a new counter, family or label: in memory only, with a warning, if the disk has no room."""
        raw = raw_name(name)
        free = self._free.get((type(name), words_for(raw)))
        if free:
            used = free.pop()
            record = CounterRecord(self, used.words, used.at)
            if isinstance(name, Key):
                record.begin()
            else:
                record.clear()
        else:
            record = CounterRecord(self, *self._reserve(name, raw, NAME_OFFSET))
        name_word = write_name(record.words, record.at + NAME_OFFSET, name)
        if name not in self._records:
            record.words[record.at] = name_word
            self._records[name] = record
        else:  # a signal handler has allocated it in between
            self._free_record(type(name), record, name_word)
        return self._records[name]

    def free(self, name: RecordName) -> None:
        """Everything that was counted in it is delivered."""
        record = self._records.pop(name)
        self._free_record(type(name), record, record.words[record.at])

    def _free_record(self, kind: type[RecordName], record: CounterRecord, name_word: int) -> None:
        record.words[record.at] = freed(name_word)
        self._free.setdefault((kind, words_of_name(name_word)), []).append(record)

    def allocate_budget(self, budget: BudgetId, incarnation: int) -> BudgetRecord:
        """As `allocate`, for one period of a budget. A record that is free is used again."""
        raw = budget.name.encode()
        free = self._free_budgets.get(words_for(raw))
        if free:
            record = free.pop()
            record.name = budget.name
        else:
            record = BudgetRecord(budget.name, *self._reserve(budget, raw, BUDGET_NAME_OFFSET))
            self.budgets.append(record)
        record.words[record.at] = write_budget(record.words, record.at + BUDGET_NAME_OFFSET, raw)
        record.begin(budget.period, incarnation, self.boot)
        return record

    def free_budget(self, record: BudgetRecord) -> None:
        record.free()
        self._free_budgets.setdefault(words_for(record.name.encode()), []).append(record)

    def _reserve(self, name: RecordName | BudgetId, raw: bytes, name_offset: int) -> tuple[memoryview, int]:
        """Words for a new record, and the index of the first."""
        return self._file.reserve(repr(name), name_offset + words_for(raw))

    @contextmanager
    def new_incarnation(self, incarnation: int, shard: int | None = None) -> Iterator[None]:
        """While the context lasts, every record must be rebased; with a `shard`, those of its counters and families.
        All of it takes effect when the context ends.
        """
        head, of_shard = self._head, None
        if shard is not None:
            of_shard = self._records.get(ShardName(shard)) or self._allocate_shard(shard)
            for record in [*self._records.values()]:
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
        name = ShardName(shard)
        record = CounterRecord(self, *self._reserve(name, raw_name(name), NAME_OFFSET))
        record.rebase(self.site_id.incarnation)
        record.words[record.at] = write_name(record.words, record.at + NAME_OFFSET, name)
        self._records[name] = record
        return record

    def release(self) -> None:
        """Leave the file to the next process; in a forked child, to the parent."""
        self._file.release()

    def delete(self) -> None:
        """For a file that is delivered. If it cannot be deleted it is delivered again, which changes nothing."""
        self._file.delete()

    def _write_header(self, site_id: SiteId) -> None:
        head, raw = self._head, str(site_id.site).encode()
        head[_VERSION], head[_INCARNATION] = VERSION, site_id.incarnation
        head[_SITE] = write_text(head, _SITE + 1, raw)
        head[0] = _MAGIC
        self._file.used = _SITE + 1 + words_for(raw)

    def _read(self) -> None:
        chunks = self._file.chunks
        head = chunks[0] if chunks else None
        if head is None or head[0] != _MAGIC:
            raise StateError(f"{self.path} is not a file of counts, or is damaged: its beginning is missing")
        if head[_VERSION] != VERSION:
            age = "a newer" if head[_VERSION] > VERSION else "an older"
            formats = f"format {head[_VERSION]}, not {VERSION}"
            raise StateError(f"{self.path} was written by {age} Countless ({formats}): run that version to deliver it")
        self.slot = head[_GENERATION] & 1
        site = read_text(head, _SITE, _SITE + 1)
        if site is None:
            raise self._damaged("the site's name")
        if head[_INCARNATION + self.slot] >= MAX_COUNT:
            raise self._damaged("the incarnation")
        at = _SITE + 1 + words_for(site.encode())
        for words in chunks:
            while at < CHUNK_WORDS and words[at]:
                at = self._read_record(words, at)
            self._file.used, at = at, 0
        self._file.clear_unused()

    def _read_record(self, words: memoryview, at: int) -> int:
        """The index of the next one."""
        of_budget = is_budget(words[at])
        name_at = at + (BUDGET_NAME_OFFSET if of_budget else NAME_OFFSET)
        what = f"record {len(self._records) + len(self.budgets) + 1}"
        if name_at > CHUNK_WORDS:
            raise self._damaged(what)
        if of_budget:
            budget = read_text(words, at, name_at)
            if budget is None and BudgetRecord("", words, at).incarnation:
                raise self._damaged(what)
            # Without a name it is free, and was getting another name of as many words.
            self.budgets.append(BudgetRecord(budget or "", words, at))
        elif not is_free(words[at]):
            name = read_name(words, at, name_at)
            if name is None:
                raise self._damaged(what)
            self._records[name] = record = CounterRecord(self, words, at)
            if isinstance(name, Key) and record.count < 0:
                raise self._damaged(f"the count of {str(name)!r}")
        return name_at + words_of_name(words[at])

    def _damaged(self, what: str) -> StateError:
        return StateError(f"{self.path} is damaged: {what} is invalid")
