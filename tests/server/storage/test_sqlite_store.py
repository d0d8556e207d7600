"""The state file: what was saved is there again after a restart, while its journal is folded and its WAL restarted."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core.coordinator import PersistentState
from countless.core.messages import SiteId
from countless.server.storage import journal, sqlite_store
from countless.server.storage.base import Changes, Config, CounterFields, StoreError
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.sqlite_store import SqliteStore
from simulator.stores import TearingSqliteStore
from support.tombstones import final, shown

WEB = SiteId("web", 2**62)


def created(name: str, published: int = 5) -> Changes:
    return Changes({name: CounterFields(1, published, 0)}, configs={name: Config()})


def test_saved_changes_are_loaded_by_the_next_process(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "state" / "file")
    store.save(created("hits"))
    store.save(Changes(counts={"hits": {WEB: 2**90}}, tombstones=[final("hits", SiteId("old", 1), 5)]))
    store.close()
    again = SqliteStore(tmp_path / "state" / "file")
    assert again.load() == {"hits": (Config(), PersistentState(1, 5, 0, ((WEB, 2**90),)))}
    assert shown(again.tombstones(SiteId("old", 1))) == (("hits", 5),)
    again.close()


def test_failed_save_changes_nothing_and_the_next_one_succeeds() -> None:
    store = SqliteStore(None)
    store.save(created("hits"))
    with pytest.raises(StoreError, match="save failed"):
        store.save(Changes({"hits": CounterFields(2, 6, 0)}, tombstones=[final("hits", SiteId("web", None), 1)]))  # type: ignore[arg-type]
    assert store.load()["hits"][1].published == 5
    store.save(Changes({"hits": CounterFields(2, 6, 0)}))
    assert store.load()["hits"][1].published == 6


def test_save_that_is_interrupted_anywhere_changes_nothing_and_the_next_one_succeeds() -> None:
    """Also at its first statement: the transaction that it has begun is not left open."""
    store = TearingSqliteStore(None)
    store.save(created("hits"))
    interrupted = 0
    for steps in range(1, 60):
        saved = store.load()
        try:
            store.save_in_part(Changes({"hits": CounterFields(1, 5 + steps, 0)}), steps)
        except StoreError:
            interrupted += 1
            assert store.load() == saved
    assert interrupted > 5
    store.save(Changes({"hits": CounterFields(2, 100, 0)}))
    assert store.load()["hits"][1].published == 100


Step = tuple[int, int, int]


def change(step: Step, known: MemoryStore) -> Changes:
    """A counter is created before its first count; one count in six deletes it, one removes the site."""
    counter, site, count = step
    name, site_id = f"c{counter}", SiteId(f"s{site}", 1)
    if count == 0:
        return Changes(deleted=[name])
    fields = {name: CounterFields(count, count, 0)}
    configs = {} if name in known.load() else {name: Config()}
    return Changes(fields, {name: {site_id: None if count == 1 else count}}, configs)


@pytest.mark.slow
@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 5)), max_size=40),
    st.sets(st.integers(0, 39)),
    st.sets(st.integers(0, 39)),
)
def test_folds_failed_saves_and_restarts_lose_nothing(
    steps: list[Step], failures: set[int], restarts: set[int]
) -> None:
    """A fold begins after some entries; then each save writes a row of it, or deletes an entry."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(dir=fast_directory()) as directory:
        patch.setattr(journal, "MAX_BYTES", 60)
        patch.setattr(sqlite_store, "ROWS_PER_SAVE", 1)
        patch.setattr(sqlite_store, "ENTRIES_PER_SAVE", 1)
        path = Path(directory) / "file"
        expected, store = MemoryStore(), SqliteStore(path)
        for number, step in enumerate(steps):
            changes = change(step, expected)
            if number in failures:
                with pytest.raises(StoreError):
                    store.save(replace(changes, tombstones=[final("c0", SiteId("s", None), 1)]))  # type: ignore[arg-type]
            store.save(changes)
            expected.save(changes)
            if number in restarts:
                store.close()
                store = SqliteStore(path)
        found, wanted = store.load(), expected.load()
        assert store.debug_state() == {"journal_entries": 0}
        store.close()
    assert {name: (state[:3], sorted(state.known)) for name, (_, state) in found.items()} == {
        name: (state[:3], sorted(state.known)) for name, (_, state) in wanted.items()
    }


def fast_directory() -> str | None:
    """In memory where there is such a place: the test is about what is written, not about surviving a power cut."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def test_journal_stays_short_and_checkpoints_beside_the_writer_restart_the_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 2_000)
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_PAGES", 50)
    writer, other = SqliteStore(tmp_path / "file"), SqliteStore(tmp_path / "file")
    writer.save(created("hits", 0))
    sizes = []
    for number in range(1, 401):
        writer.save(Changes({"hits": CounterFields(1, number, 0)}, {"hits": {WEB: number}}))
        assert writer.debug_state()["journal_entries"] < 100
        if number % 100 == 0:
            other.checkpoint()
            sizes.append((tmp_path / "file-wal").stat().st_size)
    assert sizes[-1] <= 1.2 * sizes[0]
    assert writer.load() == {"hits": (Config(), PersistentState(1, 400, 0, ((WEB, 400),)))}
    for store in (writer, other):
        store.close()
