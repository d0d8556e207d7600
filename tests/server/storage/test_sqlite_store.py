"""What is saved is there again; what somebody else saved is not touched."""

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core.coordinator import PersistentState
from countless.core.messages import SiteId
from countless.server.storage.base import Changes, Config, CounterFields, StoreError
from countless.server.storage.sqlite_store import SCHEMA, SqliteStore

FIRST_SCHEMA = f"""
PRAGMA user_version = 1;
PRAGMA application_id = {0x436F756E};
CREATE TABLE counters (
    name TEXT PRIMARY KEY, alpha REAL NOT NULL, delta REAL NOT NULL, scheme TEXT NOT NULL, adversary TEXT NOT NULL,
    label_cap INTEGER NOT NULL, round INTEGER NOT NULL, published TEXT NOT NULL, departed TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE sites (
    counter TEXT NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL, known TEXT NOT NULL,
    PRIMARY KEY (counter, site, incarnation)
) WITHOUT ROWID;
CREATE TABLE gone (
    site TEXT NOT NULL, incarnation INTEGER NOT NULL, counter TEXT NOT NULL, known TEXT NOT NULL,
    PRIMARY KEY (site, incarnation, counter)
) WITHOUT ROWID;
CREATE TABLE tokens (
    digest BLOB PRIMARY KEY, scope TEXT NOT NULL, site TEXT, label TEXT NOT NULL, created INTEGER NOT NULL
) WITHOUT ROWID;
"""
WEB, OLD = SiteId("web", 2**62), SiteId("web", 1)


def made(name: str, config: Config = Config(), *figures: Any) -> Changes:  # noqa: B008 - frozen
    return Changes({name: CounterFields(*figures or (1, 5, 0))}, configs={name: config})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    config = Config(alpha=0.02, scheme="dithered")
    store = SqliteStore(tmp_path / "state" / "file")
    store.save(made("hits", config, 7, 2**80, 2**70))
    store.save(Changes(counts={"hits": {WEB: 2**90, OLD: 4}}))
    store.save(Changes(counts={"hits": {WEB: 2**90 + 1, OLD: None}}, tombstones={("hits", OLD): 5}))
    store.close()
    again = SqliteStore(tmp_path / "state" / "file")
    assert again.load() == {"hits": (config, PersistentState(7, 2**80, 2**70, ((WEB, 2**90 + 1),)))}
    assert again.load() == {"hits": (config, PersistentState(7, 2**80, 2**70, ((WEB, 2**90 + 1),)))}
    assert again.tombstones(OLD) == (("hits", 5),)
    assert again.tombstones(WEB) == ()
    again.close()


def test_a_published_total_with_a_fraction_survives() -> None:
    store = SqliteStore(None)
    store.save(made("hits", Config(), 1, 12.5, 0))
    assert store.load()["hits"][1].published == 12.5


def test_deleting_a_counter_leaves_nothing_of_it() -> None:
    store = SqliteStore(None)
    store.save(made("hits"))
    store.save(Changes(counts={"hits": {WEB: 5}}, tombstones={("hits", OLD): 3}))
    store.save(Changes(deleted=["hits"]))
    assert store.load() == {}
    assert store.tombstones(OLD) == ()
    store.save(Changes({"hits": CounterFields(1, 2, 0)}, {"hits": {OLD: 2}}, {"hits": Config()}, deleted=["hits"]))
    assert store.load() == {"hits": (Config(), PersistentState(1, 2, 0, ((OLD, 2),)))}


def test_a_save_that_fails_changes_nothing() -> None:
    store = SqliteStore(None)
    store.save(made("hits"))
    with pytest.raises(sqlite3.Error):
        store.save(Changes({"hits": CounterFields(2, 6, 0)}, tombstones={("hits", SiteId("web", None)): 1}))  # type: ignore[arg-type]
    assert store.load()["hits"][1].published == 5


def quick(path: Path) -> SqliteStore:
    """Without waiting for the disk: what is tested is what is written, not that it stays."""
    store = SqliteStore(path)
    store._db.execute("PRAGMA synchronous = OFF")
    return store


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 60)), max_size=40), st.integers(0, 40))
def test_whenever_it_is_opened_again_the_journal_and_the_tables_say_the_same(
    story: list[tuple[int, int, int]], reopened: int
) -> None:
    """Lines that travel through a journal of a few bytes, in slices of two, against a plain dictionary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("countless.server.storage.journal.MOST_BYTES", 40)
        patch.setattr("countless.server.storage.journal.SLICE", 2)
        with TemporaryDirectory() as directory:
            store = quick(Path(directory) / "file")
            truth: dict[str, tuple[Any, dict[SiteId, int]]] = {}
            for moment, (counter, site, count) in enumerate(story):
                name, site_id = f"c{counter}", SiteId(f"s{site}", 1)
                if name not in truth:
                    truth[name] = (CounterFields(0, 0, 0), {})
                    store.save(made(name, Config(), 0, 0, 0))
                if count == 60:
                    del truth[name]
                    store.save(Changes(deleted=[name]))
                    continue
                empty = count % 7 == 0
                truth[name] = (CounterFields(moment, count, 0), {**truth[name][1], site_id: count})
                if empty:
                    del truth[name][1][site_id]
                store.save(Changes({name: truth[name][0]}, {name: {site_id: None if empty else count}}))
                if moment == reopened:
                    store.close()
                    store = quick(Path(directory) / "file")
                    store.load()
            found = {
                name: (saved_state[:3], dict(saved_state.known)) for name, (_, saved_state) in store.load().items()
            }
            store.close()
    assert found == truth


def test_lives_that_ended_long_ago_are_dropped_and_the_store_says_since_when(tmp_path: Path) -> None:
    now = 1000.0
    store = SqliteStore(tmp_path / "file", lambda: now)
    store.save(Changes(tombstones={("hits", OLD): 3}))
    now = 2000.0
    store.save(Changes(tombstones={("hits", WEB): 4}))
    store.save(Changes(prune_before=900))
    assert (store.tombstone_horizon(), store.tombstones(OLD)) == (0, (("hits", 3),))
    store.save(Changes(prune_before=1500))
    assert (store.tombstone_horizon(), store.tombstones(OLD), store.tombstones(WEB)) == (1500, (), (("hits", 4),))
    store.close()


def test_a_file_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "file")
    database.executescript(FIRST_SCHEMA)
    database.execute("INSERT INTO counters VALUES ('hits', 0.01, 0.05, 'auto', 'adaptive', 2000, 3, '70', '9')")
    database.execute("INSERT INTO sites VALUES ('hits', 'web', 1, '61')")
    database.execute("INSERT INTO gone VALUES ('old', 1, 'hits', '9')")
    database.commit()
    database.close()
    store = SqliteStore(tmp_path / "file")
    assert store.load() == {"hits": (Config(), PersistentState(3, 70, 9, ((OLD, 61),)))}
    store.save(Changes(prune_before=10**9))  # what ended before ages were kept counts as ended now
    assert store.tombstones(SiteId("old", 1)) == (("hits", 9),)
    store.close()


def test_a_newer_schema_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "file").close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    database.close()
    with pytest.raises(StoreError, match=f"newer Countless .schema {SCHEMA + 1}; this one knows up to {SCHEMA}"):
        SqliteStore(tmp_path / "file")


def test_another_programs_file_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "file")
    database.execute("PRAGMA user_version = 1")
    database.close()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(tmp_path / "file")
    (tmp_path / "text").write_text("this is no database, whatever its name says. " * 100)
    with pytest.raises(StoreError, match="not a database of Countless"):
        SqliteStore(tmp_path / "text")


def test_the_log_is_begun_anew_beside_the_writer_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "file"
    store, beside = quick(path), SqliteStore(path)
    store.save(made("hits", Config(), 0, 0, 0))
    log, sizes = tmp_path / "file-wal", []
    for number in range(1, 4_001):
        store.save(Changes({"hits": CounterFields(1, number, 0)}, {"hits": {WEB: number}}))
        if number % 1_000 == 0:
            beside.checkpoint()
            sizes.append(log.stat().st_size)
    assert sizes[-1] <= 1.2 * sizes[0]
    beside.close()
    store.close()
    assert quick(path).load() == {"hits": (Config(), PersistentState(1, 4_000, 0, ((WEB, 4_000),)))}
