"""The state file: what was saved is there again after a restart, while its journal is folded and its WAL restarted."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core.coordinator import PersistentState
from countless.core.messages import SiteId
from countless.server.storage import sqlite_store
from countless.server.storage.base import Changes, Config, CounterFields, StoreError
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.sqlite_store import SqliteStore

WEB = SiteId("web", 2**62)


def created(name: str, published: int = 5) -> Changes:
    return Changes({name: CounterFields(1, published, 0)}, configs={name: Config()})


def test_saved_changes_are_loaded_by_the_next_process(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state" / "file")
    store.save(created("hits"))
    store.save(Changes(counts={"hits": {WEB: 2**90}}, tombstones={("hits", SiteId("old", 1)): 5}))
    store.close()
    again = SqliteStore(tmp_path / "state" / "file")
    assert again.load() == {"hits": (Config(), PersistentState(1, 5, 0, ((WEB, 2**90),)))}
    assert again.tombstones(SiteId("old", 1)) == (("hits", 5),)
    again.close()


def test_failed_save_changes_nothing_and_the_next_one_succeeds() -> None:
    store = SqliteStore(None)
    store.save(created("hits"))
    with pytest.raises(StoreError, match="save failed"):
        store.save(Changes({"hits": CounterFields(2, 6, 0)}, tombstones={("hits", SiteId("web", None)): 1}))  # type: ignore[arg-type]
    assert store.load()["hits"][1].published == 5
    store.save(Changes({"hits": CounterFields(2, 6, 0)}))
    assert store.load()["hits"][1].published == 6


Step = tuple[int, int, int]


def change(step: Step, known: MemoryStore) -> Changes:
    """A counter is created before its first count; one count in twelve deletes it, one removes the site."""
    counter, site, count = step
    name, site_id = f"c{counter}", SiteId(f"s{site}", 1)
    if count == 0:
        return Changes(deleted=[name])
    fields = {name: CounterFields(count, count, 0)}
    configs = {} if name in known.load() else {name: Config()}
    return Changes(fields, {name: {site_id: None if count == 1 else count}}, configs)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 11)), max_size=25),
    st.sets(st.integers(0, 24)),
    st.sets(st.integers(0, 24)),
)
def test_saves_during_a_fold_and_restarts_lose_nothing(steps: list[Step], folds: set[int], restarts: set[int]) -> None:
    """Another store folds the journal, a row at a time, and one save comes between any two of its transactions."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(dir=fast_directory()) as directory:
        path = Path(directory) / "file"
        expected, waiting = MemoryStore(), iter(steps)
        stores = {"writer": SqliteStore(path)}

        def save_next(_: float = 0) -> bool:
            step = next(waiting, None)
            if step is None:
                return False
            changes = change(step, expected)
            stores["writer"].save(changes)
            expected.save(changes)
            return True

        patch.setattr(sqlite_store, "ROWS_PER_TRANSACTION", 1)
        patch.setattr(sqlite_store, "sleep", save_next)
        number = 0
        while save_next():
            if number in folds:
                beside = SqliteStore(path)
                beside.checkpoint()
                beside.close()
            if number in restarts:
                stores["writer"].close()
                stores["writer"] = SqliteStore(path)
            number += 1
        patch.setattr(sqlite_store, "sleep", lambda _: None)
        found, wanted = stores["writer"].load(), expected.load()
        assert stores["writer"].debug_state() == {"journal_entries": 0}
        stores["writer"].close()
    assert {name: (state[:3], sorted(state.known)) for name, (_, state) in found.items()} == {
        name: (state[:3], sorted(state.known)) for name, (_, state) in wanted.items()
    }


def fast_directory() -> str | None:
    """In memory where there is such a place: the test is about what is written, not about surviving a power cut."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    """A writer, and a second store of the same file."""
    stores = SqliteStore(tmp_path / "file"), SqliteStore(tmp_path / "file")
    yield stores
    for store in stores:
        store.close()


def test_checkpoint_beside_the_writer_empties_the_journal_and_restarts_the_wal(
    tmp_path: Path, beside: tuple[SqliteStore, SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_PAGES", 50)
    writer, other = beside
    writer.save(created("hits", 0))
    sizes = []
    for number in range(1, 401):
        writer.save(Changes({"hits": CounterFields(1, number, 0)}, {"hits": {WEB: number}}))
        if number % 100 == 0:
            assert writer.debug_state()["journal_entries"] >= 100
            other.checkpoint()
            assert writer.debug_state()["journal_entries"] == 0
            sizes.append((tmp_path / "file-wal").stat().st_size)
    assert sizes[-1] <= 1.2 * sizes[0]
    assert writer.load() == {"hits": (Config(), PersistentState(1, 400, 0, ((WEB, 400),)))}
