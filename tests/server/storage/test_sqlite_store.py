"""The state file: what was saved is there again after a restart, while its journal is folded and its WAL restarted."""

from pathlib import Path

import pytest

from countless.core.coordinator import PersistentCounter
from countless.core.messages import SiteId
from countless.server.kinds.counter import CounterFields
from countless.server.settings import Config
from countless.server.storage import journal, sqlite_store
from countless.server.storage.base import StoreError
from countless.server.storage.rows import Changes, Tombstone, What
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.keys import COUNTER, Key
from simulator.stores import TearingSqliteStore
from support.saved import counter_changes, load_counters

WEB, HITS = SiteId("web", 2**62), Key(COUNTER, "hits")


def created(published: int = 5) -> Changes:
    return counter_changes("hits", Config(), CounterFields(1, published, 0))


def published(number: int) -> Changes:
    return counter_changes("hits", fields=CounterFields(2, number, 0), counts={WEB: number})


def test_saved_changes_are_loaded_by_the_next_process(tmp_path: Path) -> None:
    store, tombstone = SqliteStore(tmp_path / "state" / "file"), Tombstone(SiteId("old", 1), HITS, What.COUNT, 5)
    store.save(created())
    store.save(Changes(counter_changes("hits", counts={WEB: 2**90}).rows, tombstones=[tombstone]))
    store.close()
    again = SqliteStore(tmp_path / "state" / "file")
    assert load_counters(again) == {"hits": (Config(), PersistentCounter(1, 5, 0, ((WEB, 2**90),)))}
    assert again.tombstones(SiteId("old", 1)) == [tombstone]
    again.close()


def test_failed_save_changes_nothing_and_the_next_one_succeeds() -> None:
    store = SqliteStore(None)
    store.save(created())
    wrong = Tombstone(SiteId("web", None), HITS, What.COUNT)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="save failed"):
        store.save(Changes(published(6).rows, tombstones=[wrong]))
    assert load_counters(store)["hits"][1].published == 5
    store.save(published(6))
    assert load_counters(store)["hits"][1].published == 6


def test_save_that_is_interrupted_anywhere_changes_nothing_and_the_next_one_succeeds() -> None:
    """Also at its first statement: the transaction that it has begun is not left open."""
    store = TearingSqliteStore(None)
    store.save(created())
    interrupted = 0
    for steps in range(1, 60):
        saved = load_counters(store)
        try:
            store.save_in_part(published(5 + steps), steps)
        except StoreError:
            interrupted += 1
            assert load_counters(store) == saved
    assert interrupted > 5
    store.save(published(100))
    assert load_counters(store)["hits"][1].published == 100


def test_journal_stays_short_and_checkpoints_beside_the_writer_restart_the_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 2_000)
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_PAGES", 50)
    writer, other = SqliteStore(tmp_path / "file"), SqliteStore(tmp_path / "file")
    writer.save(created(0))
    sizes = []
    for number in range(1, 401):
        writer.save(published(number))
        assert writer.debug_state()["journal_entries"] < 100
        if number % 100 == 0:
            other.checkpoint()
            sizes.append((tmp_path / "file-wal").stat().st_size)
    assert sizes[-1] <= 1.2 * sizes[0]
    assert load_counters(writer) == {"hits": (Config(), PersistentCounter(2, 400, 0, ((WEB, 400),)))}
    for store in (writer, other):
        store.close()
