"""The file of counts: what is found in it after its process has died, at whatever store that was."""

import errno
import os
from pathlib import Path
from shutil import copyfile
from threading import RLock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.client.durable.count_file import CHUNK, CountFile, StateError
from countless.client.durable.record import MOST, Cells
from countless.core.messages import Report, SiteId, Snapshot
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.errors import InvalidParameter
from countless.randomness import SeededRandom

LIFE = SiteId("here", 77)


def dead(file: CountFile) -> Path:
    """The file as it is when its process has died."""
    file.release()
    assert file.path is not None
    return file.path


def adopted(path: Path) -> CountFile:
    file = CountFile.adopt(path)
    assert file is not None
    return file


def counts(file: CountFile) -> dict[str, int]:
    return {name: cells.count for name, cells in file.cells.items()}


class Dying:
    """Words in which the process dies: after so many stores."""

    def __init__(self, words: Any, stores: list[int]) -> None:
        self._words = words
        self._stores = stores

    def __getitem__(self, at: Any) -> Any:
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        if not self._stores[0]:
            raise KeyboardInterrupt
        self._stores[0] -= 1
        self._words[at] = value


def doom(file: CountFile, stores: int) -> list[int]:
    left = [stores]
    file._chunks = [Dying(words, left) for words in file._chunks]  # type: ignore[misc]
    for cells in file.cells.values():
        cells._words = Dying(cells._words, left)  # type: ignore[assignment]
    return left


def test_what_was_counted_is_found_again(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path / "deep" / "down", LIFE)
    hits, tickets = file.allocate("hits"), file.allocate("hits ü").tickets(RLock())
    hits.add(30)
    assert [next(tickets) for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    again = adopted(dead(file))
    assert (again.site_id, counts(again)) == (LIFE, {"hits": 30, "hits ü": 7})
    again.delete()
    assert list(tmp_path.glob("deep/down/*")) == []


def test_a_file_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, LIFE)
    assert file.path is not None
    assert CountFile.adopt(file.path) is None
    heir = adopted(dead(file))
    assert CountFile.adopt(file.path) is None
    heir.delete()
    assert CountFile.adopt(file.path) is None


def test_it_grows_without_moving_what_is_there(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, LIFE)
    names = [f"{'é' * 450}{number}" for number in range(300)]
    cells = [file.allocate(name) for name in names]
    for number, cell in enumerate(cells):
        cell.add(number)
    path = dead(file)
    assert path.stat().st_size >= 4 * CHUNK
    assert counts(adopted(path)) == {name: number for number, name in enumerate(names)}


def test_a_process_may_die_while_it_grows(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, LIFE)
    file.allocate("hits").add(5)
    path = dead(file)
    with path.open("ab") as end:
        end.write(bytes(1000))
    assert counts(adopted(path)) == {"hits": 5}


def no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_in_the_beginning_and_a_warning_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = CountFile.create(tmp_path, LIFE)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", no_room)
        with pytest.raises(StateError, match="No space left"):
            CountFile.create(tmp_path, SiteId("here", 78))
        cells = [file.allocate(f"{'x' * 490}{number}") for number in range(200)]
    for cell in cells:
        cell.add(3)
    assert {cell.count for cell in cells} == {3}
    assert caplog.text.count("kept in memory only") == 1
    cells += [file.allocate(f"{'y' * 490}{number}") for number in range(200)]  # there is room again
    found = counts(adopted(dead(file)))
    assert len(list(tmp_path.iterdir())) == 1
    assert 100 < len(found) < 400
    assert found.keys() >= {f"{'y' * 490}199"}


@pytest.mark.parametrize("place", ["file", "file/below", "/dev/null/below"])
def test_a_directory_that_cannot_be_one_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StateError, match=r"state_dir = .* cannot be used: .*[Nn]ot a directory"):
        CountFile.create(tmp_path / place, LIFE)
    assert (tmp_path / "file").read_text() == "mine"


def test_memory_grows_too() -> None:
    file = CountFile.in_memory(LIFE)
    cells = [file.allocate(f"{'x' * 490}{number}") for number in range(300)]
    for cell in cells:
        cell.add(3)
    assert set(counts(file).values()) == {3}
    file.delete()


def test_counts_end_at_63_bits(tmp_path: Path) -> None:
    cells = CountFile.create(tmp_path, LIFE).allocate("hits")
    cells.add(MOST - 1)
    with pytest.raises(InvalidParameter, match="2\\^63"):
        cells.add(1)
    assert cells.count == MOST - 1


# Files that are not as they should be


@pytest.mark.parametrize("size", [0, 1, 4096, CHUNK])
def test_a_process_that_died_before_it_began_left_zeros_which_can_go(tmp_path: Path, size: int) -> None:
    path = tmp_path / "1.counts"
    path.write_bytes(bytes(size))
    assert CountFile.adopt(path) is None
    assert not path.exists()


def test_a_file_that_was_tidied_away_before_it_was_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, fooled = os.open, list[Path]()

    def tidied_at_once(path: Path, flags: int, *mode: int) -> int:
        descriptor = usual(path, flags, *mode)
        if flags & os.O_CREAT and not fooled:
            fooled.append(path)
            assert CountFile.adopt(path) is None
        return descriptor

    monkeypatch.setattr(os, "open", tidied_at_once)
    file = CountFile.create(tmp_path, LIFE)
    file.allocate("hits").add(1)
    assert fooled
    assert counts(adopted(dead(file))) == {"hits": 1}


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 7, "not a file of counts, or is damaged"),
        (1, 2, "newer Countless"),
        (3, MOST, "the incarnation makes no sense"),
        (5, 1 << 32 | 4, "the site's name makes no sense"),
        (5, (1 << 32) - 1, "the site's name makes no sense"),
        (7, 5 << 32 | 4, "record 1 makes no sense"),
        (10, 99, "the count of 'hits' makes no sense"),
    ],
)
def test_what_is_damaged_or_newer_is_refused_and_left_alone(tmp_path: Path, at: int, value: int, message: str) -> None:
    file = CountFile.create(tmp_path, LIFE)
    file.allocate("hits").add(5)
    file._chunks[0][at] = value
    path = dead(file)
    before = path.read_bytes()
    with pytest.raises(StateError, match=message):
        CountFile.adopt(path)
    assert path.read_bytes() == before
    with pytest.raises(StateError, match=message):  # it was let go of
        CountFile.adopt(path)


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = dead(CountFile.create(tmp_path, LIFE))
    os.truncate(path, 4096)
    with pytest.raises(StateError, match="beginning is missing"):
        CountFile.adopt(path)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6), st.integers(0, 2 * CHUNK))
def test_garbage_is_a_state_error_or_a_count_and_never_anything_else(
    tmp_path_factory: pytest.TempPathFactory, bytes_: list[tuple[int, int]], size: int
) -> None:
    directory = tmp_path_factory.mktemp("garbage")
    file = CountFile.create(directory, LIFE)
    for name in ("hits", "misses"):
        file.allocate(name).add(5)
    path = dead(file)
    data = bytearray(path.read_bytes())
    for at, byte in bytes_:
        data[at] = byte
    path.write_bytes(data[:size].ljust(size, b"\0"))
    try:
        found = CountFile.adopt(path)
    except StateError:
        assert path.exists()
    else:
        assert found is None or found.cells.keys() <= {"hits", "misses"}
        if found is not None:
            found.release()


# Dying at every store


def test_another_life_begins_at_one_store(tmp_path: Path) -> None:
    for stores in range(100):
        file = CountFile.create(tmp_path, SiteId("here", stores))
        for name, n in {"a": 10, "b": 20, "c": 30}.items():
            file.allocate(name).add(n)
        left = doom(file, stores)
        try:
            file.begin_again(1000, {"a": 10, "b": 5})
        except KeyboardInterrupt:
            found = adopted(dead(file))
            assert (found.site_id.incarnation, counts(found)) == (stores, {"a": 10, "b": 20, "c": 30})
        else:
            found = adopted(dead(file))
            assert (found.site_id.incarnation, counts(found)) == (1000, {"a": 0, "b": 15, "c": 30})
            assert left == [0]
            return
    raise AssertionError("it never came to an end")


def test_lives_follow_each_other(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, LIFE)
    hits, tickets = file.allocate("hits"), file.allocate("more").tickets(RLock())
    total = 0
    for life in range(5):
        hits.add(10)
        next(tickets)
        total += 10
        file.begin_again(100 + life, {"hits": 7, "more": 1})
        total -= 7
        assert counts(file) == {"hits": total, "more": 0}
        file = adopted(Path(copyfile(str(file.path), tmp_path / f"{life}.copy")))
        assert (file.site_id.incarnation, counts(file)) == (100 + life, {"hits": total, "more": 0})
        hits, tickets = file.cells["hits"], file.cells["more"].tickets(RLock())


def site_in(number: int, count: int, crossings: int) -> Site:
    site = Site("hits", LIFE, SeededRandom(1), count=count)
    site.round, site.crossings = number, crossings
    return site


def test_crossings_are_never_found_in_a_round_that_is_not_theirs(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, LIFE)
    cells = file.allocate("hits")
    cells.add(90)
    before = (Snapshot("hits", 3, 40), Report("hits", 3, 40, 12))
    after = (Snapshot("hits", 4, 80), Report("hits", 4, 80, 5))
    for stores in range(10):
        cells.note(site_in(3, 40, 12))
        alive = Cells(file, Dying(cells._words, [stores]), cells._at)  # type: ignore[arg-type]
        try:
            alive.note(site_in(4, 80, 5))
        except KeyboardInterrupt:
            snapshot, report = cells.resume("hits")
            assert (snapshot, report) == before or not getattr(report, "crossings", 0)
        else:
            assert cells.resume("hits") == after
            return
    raise AssertionError("it never came to an end")


def test_a_round_that_no_word_could_hold_is_cut_off(tmp_path: Path) -> None:
    cells = CountFile.create(tmp_path, LIFE).allocate("hits")
    cells.note(site_in(1 << 200, 1, 0))
    assert cells.hello("hits") == Snapshot("hits", MOST, 0)


def test_what_a_site_would_say_again_is_what_is_found(tmp_path: Path) -> None:
    cells = CountFile.create(tmp_path, LIFE).allocate("hits")
    site = Site("hits", LIFE, SeededRandom(1), trigger=EveryNth(10))
    site.add(25)
    cells.add(25)
    cells.note(site)
    assert (cells.hello("hits"), cells.resume("hits")) == (site.snapshot(), site.resend())
