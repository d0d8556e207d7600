"""The file of counts: what is found in it after its process has ended, at any store."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copyfile
from struct import pack_into
from threading import RLock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.client.durable.count_file import CountFile
from countless.client.durable.counter import OrphanedCounter
from countless.client.durable.record import MAX_COUNT
from countless.client.durable.record_names import FamilyName, LabelName, raw_name
from countless.client.durable.word_file import CHUNK_BYTES, StateError, WordFile
from countless.core.messages import Report, SiteId, Snapshot
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.errors import InvalidParameter
from countless.randomness import SeededRandom
from countless.wire.keys import COUNTER, FAMILY, Key
from support.interrupts import points, run_until

SITE_ID = SiteId("here", 77)
PAGES = Key(FAMILY, "pages")


def counter(name: str) -> Key:
    return Key(COUNTER, name)


def orphaned(file: CountFile) -> Path:
    """The file as it is when its process has ended."""
    file.release()
    assert file.path is not None
    return file.path


def open_orphan(path: Path) -> CountFile:
    file = CountFile.open_orphan(path)
    assert file is not None
    return file


def counts(file: CountFile) -> dict[str, int]:
    return {str(key): record.count for key, record in file.records(Key).items()}


def renew(file: CountFile, incarnation: int, delivered: dict[str, int]) -> None:
    """A new incarnation of all counters, with what was not delivered."""
    orphans = {str(key): OrphanedCounter(key, record) for key, record in file.records(Key).items()}
    with file.new_incarnation(incarnation):
        for name, orphan in orphans.items():
            orphan.reset(SiteId("here", incarnation), delivered.get(name, 0))


def overwrite(path: Path, word: int, value: int) -> None:
    data = bytearray(path.read_bytes())
    pack_into("=Q", data, 8 * word, value)
    path.write_bytes(data)


class KilledWords:
    """Words of a file whose process is killed after so many stores; None: not yet."""

    left: int | None = None

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def cast(self, kind: Any) -> memoryview:
        return self._words.cast(kind)

    def __getitem__(self, at: Any) -> Any:
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        if KilledWords.left is not None:
            if not KilledWords.left:
                raise KeyboardInterrupt
            KilledWords.left -= 1
        self._words[at] = value


class KillableWordFile(WordFile):
    def _map_words(self, descriptor: int, offset: int) -> memoryview:
        return KilledWords(super()._map_words(descriptor, offset))  # type: ignore[return-value]


@contextmanager
def killed_after(stores: int) -> Iterator[None]:
    KilledWords.left = stores
    try:
        yield
    finally:
        KilledWords.left = None


@pytest.fixture
def killable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files whose process can be killed by `killed_after`."""
    monkeypatch.setattr(CountFile, "words", KillableWordFile)


def test_counts_are_found_in_the_file_of_a_process_that_has_ended(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path / "deep" / "down", SITE_ID)
    hits, sequence = file.allocate(counter("hits")), file.allocate(counter("hits ü")).sequence(RLock())
    hits.add(30)
    assert [next(sequence) for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    again = open_orphan(orphaned(file))
    assert (again.site_id, counts(again)) == (SITE_ID, {"hits": 30, "hits ü": 7})
    again.delete()
    assert list(tmp_path.glob("deep/down/*")) == []


def renew_shard(file: CountFile, shard: int, incarnation: int, name: str, delivered: int) -> None:
    """A new incarnation of the one counter that the shard has."""
    orphan = OrphanedCounter(Key(COUNTER, name), file.records(Key)[Key(COUNTER, name)])
    with file.new_incarnation(incarnation, shard):
        orphan.reset(SiteId("here", incarnation), delivered)


@pytest.mark.usefixtures("killable")
def test_shard_renewed_alone_is_renewed_completely_or_not_at_all_when_killed_at_any_store(tmp_path: Path) -> None:
    def prepared(directory: Path) -> CountFile:
        file = CountFile.create(directory, SITE_ID)
        file.allocate(counter("a")).add(30)
        file.allocate(counter("b")).add(7)
        file.allocate(FamilyName(PAGES, "labels", 0.01, 0.0))
        file.allocate(LabelName(PAGES, "/x")).add(3)
        return file

    found = set()
    for stores in points():
        file = open_orphan(orphaned(prepared(tmp_path / str(stores))))
        try:
            with killed_after(stores):
                renew_shard(file, 1, 88, "b", 5)
                renew_shard(file, 0, 99, "a", 10)
                renew_shard(file, 1, 111, "b", 2)
            killed = False
        except KeyboardInterrupt:
            killed = True
        again = open_orphan(orphaned(file))
        assert again.site_id == SITE_ID
        assert again.records(LabelName)[LabelName(PAGES, "/x")].count == 3
        incarnations = {shard: number for shard, number in again.incarnations.items() if number != 77}
        found.add((tuple(sorted(incarnations.items())), *counts(again).items()))
        if not killed:
            break
    assert found == {
        ((), ("a", 30), ("b", 7)),
        (((1, 88),), ("a", 30), ("b", 2)),
        (((0, 99), (1, 88)), ("a", 20), ("b", 2)),
        (((0, 99), (1, 111)), ("a", 20), ("b", 0)),
    }


@pytest.mark.usefixtures("killable")
@pytest.mark.parametrize("words_of_name", [2, 16, 40])
def test_name_of_a_record_that_a_killed_process_did_not_finish_is_not_read_as_another_record(
    tmp_path: Path, words_of_name: int
) -> None:
    """The recovery of its counts makes two shorter records there, because two shards have retired the incarnation."""
    file = CountFile.create(tmp_path, SITE_ID)
    file.allocate(counter("a")).add(30)
    with killed_after(0), suppress(KeyboardInterrupt):
        file.allocate(counter("0" * 8 * words_of_name))
    for shard, delivered in ((0, 20), (1, 4)):
        file = open_orphan(orphaned(file))
        renew_shard(file, shard, 1000 + shard, "a", delivered)
    file = open_orphan(orphaned(file))
    assert (counts(file), file.incarnations) == ({"a": 6}, {0: 1000, 1: 1001})


def test_file_is_locked_by_one_process_at_a_time(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE_ID)
    assert file.path is not None
    assert CountFile.open_orphan(file.path) is None
    orphan = open_orphan(orphaned(file))
    assert CountFile.open_orphan(file.path) is None
    orphan.delete()
    assert CountFile.open_orphan(file.path) is None


def test_file_grows_without_moving_records(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE_ID)
    names = [f"{'é' * 450}{number}" for number in range(300)]
    records = [file.allocate(counter(name)) for name in names]
    for number, record in enumerate(records):
        record.add(number)
    path = orphaned(file)
    assert path.stat().st_size >= 4 * CHUNK_BYTES
    assert counts(open_orphan(path)) == {name: number for number, name in enumerate(names)}


def test_incomplete_last_chunk_is_ignored(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE_ID)
    file.allocate(counter("hits")).add(5)
    path = orphaned(file)
    with path.open("ab") as end:
        end.write(bytes(1000))
    assert counts(open_orphan(path)) == {"hits": 5}


def no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_is_an_error_at_creation_and_a_warning_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = CountFile.create(tmp_path, SITE_ID)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", no_room)
        with pytest.raises(StateError, match="No space left"):
            CountFile.create(tmp_path, SiteId("here", 78))
        records = [file.allocate(counter(f"{'x' * 490}{number}")) for number in range(200)]
    for record in records:
        record.add(3)
    assert {record.count for record in records} == {3}
    assert caplog.text.count("kept in memory only") == 1
    records += [file.allocate(counter(f"{'y' * 490}{number}")) for number in range(200)]  # there is room again
    found = counts(open_orphan(orphaned(file)))
    assert len(list(tmp_path.iterdir())) == 1
    assert 100 < len(found) < 400
    assert found.keys() >= {f"{'y' * 490}199"}


@pytest.mark.parametrize("place", ["file", "file/below", "/dev/null/below"])
def test_path_that_cannot_be_a_directory_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StateError, match=r"state_dir = .* cannot be used: .*[Nn]ot a directory"):
        CountFile.create(tmp_path / place, SITE_ID)
    assert (tmp_path / "file").read_text() == "mine"


def test_records_in_memory_grow_too() -> None:
    file = CountFile.in_memory(SITE_ID)
    records = [file.allocate(counter(f"{'x' * 490}{number}")) for number in range(300)]
    for record in records:
        record.add(3)
    assert set(counts(file).values()) == {3}
    file.delete()


def test_count_beyond_63_bits_is_refused(tmp_path: Path) -> None:
    record = CountFile.create(tmp_path, SITE_ID).allocate(counter("hits"))
    record.add(MAX_COUNT - 1)
    with pytest.raises(InvalidParameter, match="2\\^63"):
        record.add(1)
    assert record.count == MAX_COUNT - 1


# Damaged files


@pytest.mark.parametrize("size", [0, 1, 4096, CHUNK_BYTES])
def test_file_of_zeros_is_deleted(tmp_path: Path, size: int) -> None:
    """A process that was killed before it wrote the header leaves it."""
    path = tmp_path / "1.counts"
    path.write_bytes(bytes(size))
    assert CountFile.open_orphan(path) is None
    assert not path.exists()


def test_file_that_was_deleted_before_it_was_locked_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, deleted = os.open, list[Path]()

    def deleted_at_once(path: Path, flags: int, *mode: int) -> int:
        descriptor = usual(path, flags, *mode)
        if flags & os.O_CREAT and not deleted:
            deleted.append(path)
            assert CountFile.open_orphan(path) is None
        return descriptor

    monkeypatch.setattr(os, "open", deleted_at_once)
    file = CountFile.create(tmp_path, SITE_ID)
    file.allocate(counter("hits")).add(1)
    assert deleted
    assert counts(open_orphan(orphaned(file))) == {"hits": 1}


@pytest.mark.parametrize(
    ("word", "value", "message"),
    [
        (0, 7, "not a file of counts, or is damaged"),
        (1, 8, "newer Countless .format 8, not 7"),
        (1, 6, "older Countless .format 6, not 7"),
        (3, MAX_COUNT, "the incarnation is invalid"),
        (5, 1 << 32 | 4, "the site's name is invalid"),
        (5, (1 << 32) - 1, "the site's name is invalid"),
        (7, 5 << 32 | 4, "record 1 is invalid"),
        (10, 99, "the count of 'hits' is invalid"),
    ],
)
def test_file_that_is_damaged_or_of_another_format_is_refused_and_left_alone(
    tmp_path: Path, word: int, value: int, message: str
) -> None:
    file = CountFile.create(tmp_path, SITE_ID)
    file.allocate(counter("hits")).add(5)
    path = orphaned(file)
    overwrite(path, word, value)
    before = path.read_bytes()
    with pytest.raises(StateError, match=message):
        CountFile.open_orphan(path)
    assert path.read_bytes() == before
    with pytest.raises(StateError, match=message):  # its lock was released
        CountFile.open_orphan(path)


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    path = orphaned(CountFile.create(tmp_path, SITE_ID))
    os.truncate(path, 4096)
    with pytest.raises(StateError, match="beginning is missing"):
        CountFile.open_orphan(path)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6), st.integers(0, 2 * CHUNK_BYTES))
def test_random_bytes_are_a_state_error_or_counts(
    tmp_path_factory: pytest.TempPathFactory, bytes_: list[tuple[int, int]], size: int
) -> None:
    directory = tmp_path_factory.mktemp("garbage")
    file = CountFile.create(directory, SITE_ID)
    for name in ("hits", "misses"):
        file.allocate(counter(name)).add(5)
    path = orphaned(file)
    data = bytearray(path.read_bytes())
    for at, byte in bytes_:
        data[at] = byte
    path.write_bytes(data[:size].ljust(size, b"\0"))
    try:
        found = CountFile.open_orphan(path)
    except StateError:
        assert path.exists()
    else:
        assert found is None or counts(found).keys() <= {"hits", "misses"}
        if found is not None:
            found.release()


# A process that is killed at any store


@pytest.mark.usefixtures("killable")
def test_new_incarnation_takes_effect_at_one_store(tmp_path: Path) -> None:
    for stores in range(100):
        file = CountFile.create(tmp_path, SiteId("here", stores))
        for name, n in {"a": 10, "b": 20, "c": 30}.items():
            file.allocate(counter(name)).add(n)
        try:
            with killed_after(stores):
                renew(file, 1000, {"a": 10, "b": 5})
        except KeyboardInterrupt:
            found = open_orphan(orphaned(file))
            assert (found.site_id.incarnation, counts(found)) == (stores, {"a": 10, "b": 20, "c": 30})
        else:
            found = open_orphan(orphaned(file))
            assert (found.site_id.incarnation, counts(found)) == (1000, {"a": 0, "b": 15, "c": 30})
            assert stores == 3 * 5 + 2
            return
    raise AssertionError("not finished after 100 stores")


def test_incarnations_follow_each_other(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE_ID)
    hits, sequence = file.allocate(counter("hits")), file.allocate(counter("more")).sequence(RLock())
    total = 0
    for number in range(5):
        hits.add(10)
        next(sequence)
        total += 10
        renew(file, 100 + number, {"hits": 7, "more": 1})
        total -= 7
        assert counts(file) == {"hits": total, "more": 0}
        file = open_orphan(Path(copyfile(str(file.path), tmp_path / f"{number}.copy")))
        assert (file.site_id.incarnation, counts(file)) == (100 + number, {"hits": total, "more": 0})
        records = file.records(Key)
        hits, sequence = records[counter("hits")], records[counter("more")].sequence(RLock())


def site_in(number: int, count: int, crossings: int) -> Site:
    site = Site("hits", SITE_ID, SeededRandom(1), count=count)
    site.round, site.crossings = number, crossings
    return site


@pytest.mark.usefixtures("killable")
def test_crossings_are_never_found_in_a_round_that_is_not_theirs(tmp_path: Path) -> None:
    record = CountFile.create(tmp_path, SITE_ID).allocate(counter("hits"))
    record.add(90)
    before = (Snapshot("hits", 3, 40), Report("hits", 3, 40, 12))
    after = (Snapshot("hits", 4, 80), Report("hits", 4, 80, 5))
    for stores in range(10):
        record.save_state(site_in(3, 40, 12))
        try:
            with killed_after(stores):
                record.save_state(site_in(4, 80, 5))
        except KeyboardInterrupt:
            snapshot, report = record.resend("hits")
            assert (snapshot, report) == before or not getattr(report, "crossings", 0)
        else:
            assert record.resend("hits") == after
            return
    raise AssertionError("not finished after 10 stores")


def test_round_beyond_64_bits_is_cut_off(tmp_path: Path) -> None:
    record = CountFile.create(tmp_path, SITE_ID).allocate(counter("hits"))
    record.save_state(site_in(1 << 200, 1, 0))
    assert record.snapshot("hits") == Snapshot("hits", MAX_COUNT, 0)


def test_record_resends_what_its_site_would_resend(tmp_path: Path) -> None:
    record = CountFile.create(tmp_path, SITE_ID).allocate(counter("hits"))
    site = Site("hits", SITE_ID, SeededRandom(1), trigger=EveryNth(10))
    site.add(25)
    record.add(25)
    record.save_state(site)
    assert (record.snapshot("hits"), record.resend("hits")) == (site.snapshot(), site.resend())


# Records that are used again


def test_record_of_a_counter_that_was_removed_is_used_for_a_name_of_as_many_words(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SITE_ID)
    file.allocate(counter("hits")).add(5)
    for number in range(10_000):
        name = f"window:{number:06}"
        record = file.allocate(counter(name))
        record.add(number)
        assert next(record.sequence(RLock())) > 0
        assert record.count == number + 1
        if number < 9_999:
            file.free(counter(name))
    path = orphaned(file)
    assert path.stat().st_size == CHUNK_BYTES
    assert counts(open_orphan(path)) == {"hits": 5, "window:009999": 10_000}


@pytest.mark.usefixtures("killable")
@pytest.mark.parametrize("renewed", ["never", "before the record is free", "while the record is free"])
def test_window_that_was_delivered_is_not_found_again_whenever_the_process_is_killed(
    tmp_path: Path, renewed: str
) -> None:
    """Counts of another window are in the same words, and a new incarnation may come in between."""
    found: list[dict[str, int]] = []
    for stores in range(100):
        file = CountFile.create(tmp_path, SiteId("here", stores))
        file.allocate(counter("hits")).add(7)
        file.allocate(counter("window:1")).add(5)
        killed = True
        try:
            with killed_after(stores):
                if renewed == "before the record is free":
                    renew(file, 1000, {"window:1": 5})
                file.free(counter("window:1"))
                if renewed == "while the record is free":
                    renew(file, 1000, {})
                file.allocate(counter("window:2")).add(3)
                killed = False
        except KeyboardInterrupt:
            pass
        found.append(counts(open_orphan(orphaned(file))))
        if not killed:
            break
    delivered = [{"hits": 7, "window:1": 0}] if renewed == "before the record is free" else []
    expected = [{"hits": 7, "window:1": 5}, *delivered, {"hits": 7}, {"hits": 7, "window:2": 0}]
    expected.append({"hits": 7, "window:2": 3})
    assert [each for number, each in enumerate(found) if number == 0 or each != found[number - 1]] == expected


@pytest.mark.parametrize("first", ["window:1", "much longer window:1"])
def test_record_that_a_signal_handler_allocated_in_between_is_found(tmp_path: Path, first: str) -> None:
    for point in points():
        file = CountFile.create(tmp_path, SiteId("here", point))
        file.allocate(counter(first))
        file.free(counter(first))

        def handler(file: CountFile = file) -> None:
            file.allocate(counter("window:2")).add(5)
            file.allocate(counter("window:3")).add(6)

        interrupted = run_until(lambda file=file: file.allocate(counter("window:2")).add(1), point, handler)  # type: ignore[misc]
        file.allocate(counter("window:4")).add(7)
        expected = {"window:2": 6, "window:3": 6, "window:4": 7} if interrupted else {"window:2": 1, "window:4": 7}
        assert counts(open_orphan(orphaned(file))) == expected
        if not interrupted:
            break
    assert point > 5


class Double(float):
    pass


def test_number_of_a_class_of_the_program_is_written_as_what_it_is() -> None:
    uses = Key(FAMILY, "uses")
    assert raw_name(FamilyName(uses, "labels", Double(0.1), 0)) == raw_name(FamilyName(uses, "labels", 0.1, 0))
