"""What is saved is there again; what somebody else saved is not touched."""

import sqlite3
from pathlib import Path

import pytest

from countless.core.coordinator import Memory
from countless.core.messages import Address
from countless.service.store import SCHEMA, Changes, Config, Store, StoreError

WEB, OLD = Address("web", 2**62), Address("web", 1)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    config = Config(alpha=0.02, scheme="dithered")
    store = Store(tmp_path / "state" / "file")
    store.save(Changes({"hits": (config, 7, 2**80, 2**70)}, {("hits", WEB): 2**90, ("hits", OLD): 4}))
    store.save(Changes(known={("hits", WEB): 2**90 + 1}, gone={("hits", OLD): 5}))
    store.close()
    again = Store(tmp_path / "state" / "file")
    assert again.load() == {"hits": (config, Memory(7, 2**80, 2**70, ((WEB, 2**90 + 1),)))}
    assert again.buried(OLD) == (("hits", 5),)
    assert again.buried(WEB) == ()
    again.close()


def test_a_published_total_with_a_fraction_survives() -> None:
    store = Store(None)
    store.save(Changes({"hits": (Config(), 1, 12.5, 0)}))
    assert store.load()["hits"][1].published == 12.5


def test_what_a_life_has_left_while_it_goes_on() -> None:
    store = Store(None)
    store.save(Changes(known={("b", WEB): 1}, gone={("a", WEB): 3, ("a", OLD): 9}))
    assert store.half_gone() == [(WEB, "a", 3)]


def test_deleting_a_counter_leaves_nothing_of_it() -> None:
    store = Store(None)
    store.save(Changes({"hits": (Config(), 1, 5, 0)}, {("hits", WEB): 5}, {("hits", OLD): 3}))
    store.save(Changes(deleted=["hits"]))
    assert store.load() == {}
    assert store.buried(OLD) == ()


def test_a_save_that_fails_changes_nothing() -> None:
    store = Store(None)
    store.save(Changes({"hits": (Config(), 1, 5, 0)}))
    with pytest.raises(sqlite3.Error):
        store.save(Changes({"hits": (Config(), 2, 6, 0)}, {("hits", Address("web", None)): 1}))  # type: ignore[arg-type]
    assert store.load()["hits"][1].published == 5


def test_a_newer_schema_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    Store(tmp_path / "file").close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    database.close()
    with pytest.raises(StoreError, match=f"newer Countless .schema {SCHEMA + 1}; this one knows up to {SCHEMA}"):
        Store(tmp_path / "file")


def test_another_programs_file_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "file")
    database.execute("PRAGMA user_version = 1")
    database.close()
    with pytest.raises(StoreError, match="another program"):
        Store(tmp_path / "file")
    (tmp_path / "text").write_text("this is no database, whatever its name says. " * 100)
    with pytest.raises(StoreError, match="not a database of Countless"):
        Store(tmp_path / "text")
