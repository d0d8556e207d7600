"""The counts and budgets of one incarnation in a memory-mapped file, which survives `kill -9`.

The file is an array of 8-byte words in the byte order of the machine, in chunks of 64 KiB (`word_file.py`):

    header     magic, version, generation, incarnation 0, incarnation 1, name word, name of the site
    records    one per counter (`record.py`), label of a family (`family.py`), or budget (`budget_record.py`): a name
               word, numbers, the name

A name word is the length of the name and its CRC-32, a bit that says whether it is a budget, one that says whether it
is of a family, and one that says whether the record is free: it can be used again, for a name that takes as many words.
It is written last: from then on the record exists. No record crosses the end of a chunk, and a name word of zero ends
the records of a chunk. A file of another version is refused.

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
from countless.client.durable.name_words import (
    IS_BUDGET,
    IS_FAMILY,
    IS_FREE,
    read_name,
    read_text,
    words_for,
    words_of_name,
    write_name,
)
from countless.client.durable.record import MAX_COUNT, NAME_OFFSET, CounterRecord
from countless.client.durable.word_file import CHUNK_WORDS, StateError, WordFile
from countless.core.budget.messages import BudgetId
from countless.core.messages import SiteId

SUFFIX = ".counts"
VERSION = 5
_MAGIC = int.from_bytes(b"countles", "little")
_VERSION, _GENERATION, _INCARNATION, _SITE = 1, 2, 3, 5  # words of the header


class CountFile:
    """All counters of one incarnation. For one thread at a time, except for the sequences of the records."""

    words = WordFile

    def __init__(self, file: WordFile) -> None:
        self.slot = 0
        self.records: dict[str, CounterRecord] = {}
        self.budgets: list[BudgetRecord] = []
        self.families: dict[str, CounterRecord] = {}  # of families and their labels: `family.py` has the names
        self._shards: dict[int, CounterRecord] = {}  # with an incarnation of their own: the base is its number
        self._free_records: dict[int, list[CounterRecord]] = {}  # by the words of their names
        self._free_families: dict[int, list[CounterRecord]] = {}  # likewise
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
        return SiteId(read_name(head, _SITE, _SITE + 1) or "", head[_INCARNATION + self.slot])

    @property
    def incarnations(self) -> dict[int, int]:
        """By shard, where it is not that of `site_id`."""
        return {shard: record.base for shard, record in self._shards.items()}

    def allocate(self, name: str) -> CounterRecord:
        """A record for a new counter: in memory only, with a warning, if there is no room on the disk."""
        raw = name.encode()
        free = self._free_records.get(words_for(raw))
        if free:
            used = free.pop()
            record = CounterRecord(self, used.words, used.at)
            record.begin()
        else:
            record = CounterRecord(self, *self._reserve("counter", name, NAME_OFFSET))
        name_word = write_name(record.words, record.at + NAME_OFFSET, raw)
        if name not in self.records:
            record.words[record.at] = name_word
            self.records[name] = record
        else:  # a signal handler has allocated it in between
            self._free_record(record, name_word)
        return self.records[name]

    def allocate_family(self, name: str) -> CounterRecord:
        """As `allocate`, for a family or one of its labels."""
        raw = name.encode()
        free = self._free_families.get(words_for(raw))
        if free:
            used = free.pop()
            record = CounterRecord(self, used.words, used.at)
            record.clear()
        else:
            record = CounterRecord(self, *self._reserve("family", name, NAME_OFFSET))
        record.words[record.at] = write_name(record.words, record.at + NAME_OFFSET, raw) | IS_FAMILY
        self.families[name] = record
        return record

    def free_family(self, name: str) -> None:
        """As `free`, for a family or one of its labels."""
        record = self.families.pop(name)
        record.words[record.at] |= IS_FREE
        self._free_families.setdefault(words_for(name.encode()), []).append(record)

    def free(self, name: str) -> None:
        """The counter is closed, and its count delivered."""
        record = self.records.pop(name)
        self._free_record(record, record.words[record.at])

    def _free_record(self, record: CounterRecord, name_word: int) -> None:
        record.words[record.at] = name_word | IS_FREE
        self._free_records.setdefault(words_of_name(name_word), []).append(record)

    def allocate_budget(self, budget: BudgetId, incarnation: int) -> BudgetRecord:
        """As `allocate`, for one period of a budget. A record that is free is used again."""
        raw = budget.name.encode()
        free = self._free_budgets.get(words_for(raw))
        if free:
            record = free.pop()
            record.name = budget.name
        else:
            record = BudgetRecord(budget.name, *self._reserve("budget", budget.name, BUDGET_NAME_OFFSET))
            self.budgets.append(record)
        record.words[record.at] = write_name(record.words, record.at + BUDGET_NAME_OFFSET, raw) | IS_BUDGET
        record.begin(budget.period, incarnation, self.boot)
        return record

    def free_budget(self, record: BudgetRecord) -> None:
        record.free()
        self._free_budgets.setdefault(words_for(record.name.encode()), []).append(record)

    def _reserve(self, kind: str, name: str, name_offset: int) -> tuple[memoryview, int]:
        """Words for a new record, and the index of the first."""
        return self._file.reserve(f"{kind} {name!r}", name_offset + words_for(name.encode()))

    @contextmanager
    def new_incarnation(self, incarnation: int, shard: int | None = None) -> Iterator[None]:
        """While the context lasts, every record must be rebased; with a `shard`, those of its counters and families.
        All of it takes effect when the context ends.
        """
        head, of_shard = self._head, None
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
        name = f"\n{shard}"
        record = CounterRecord(self, *self._reserve("shard", name, NAME_OFFSET))
        record.rebase(self.site_id.incarnation)
        record.words[record.at] = write_name(record.words, record.at + NAME_OFFSET, name.encode()) | IS_FAMILY
        self._shards[shard] = record
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
        head[_SITE] = write_name(head, _SITE + 1, raw)
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
        site = self._require(read_name(head, _SITE, _SITE + 1), "the site's name")
        if head[_INCARNATION + self.slot] >= MAX_COUNT:
            self._require(None, "the incarnation")
        at = _SITE + 1 + words_for(site.encode())
        for words in chunks:
            while at < CHUNK_WORDS and words[at]:
                at = self._read_record(words, at)
            self._file.used, at = at, 0
        self._file.clear_unused()

    def _read_record(self, words: memoryview, at: int) -> int:
        """The index of the next one."""
        is_budget = bool(words[at] & IS_BUDGET)
        name_at = at + (BUDGET_NAME_OFFSET if is_budget else NAME_OFFSET)
        what = f"record {len(self.records) + len(self.budgets) + len(self.families) + 1}"
        if name_at > CHUNK_WORDS:
            self._require(None, what)
        if words[at] & IS_FREE:
            return name_at + words_of_name(words[at])
        if words[at] & IS_FAMILY and not is_budget:
            key = self._require(read_text(words, at, name_at), what)
            if key.startswith("\n"):
                shard = self._require(key[1:] if key[1:].isdecimal() else None, what)
                self._shards[int(shard)] = CounterRecord(self, words, at)
            else:
                self.families[key] = CounterRecord(self, words, at)
            return name_at + words_for(key.encode())
        name = read_name(words, at, name_at)
        if is_budget and (name is not None or not BudgetRecord("", words, at).incarnation):
            # Without a name it is free, and was getting another name of as many words.
            self.budgets.append(BudgetRecord(name or "", words, at))
            return name_at + words_of_name(words[at])
        name = self._require(name, what)
        self.records[name] = record = CounterRecord(self, words, at)
        if record.count < 0:
            self._require(None, f"the count of {name!r}")
        return name_at + words_for(name.encode())

    def _require(self, text: str | None, what: str) -> str:
        if text is None:
            raise StateError(f"{self.path} is damaged: {what} is invalid")
        return text
