"""State files of other versions and of other programs are refused."""

import sqlite3
from pathlib import Path

import pytest

from countless.core.budget.rule import BudgetRule
from countless.core.windows.rule import WindowRule
from countless.server.storage.base import BudgetFields, Changes, Config, CounterFields, StoreError
from countless.server.storage.schema import SCHEMA
from countless.server.storage.sqlite_store import SqliteStore


def test_rule_that_this_machine_cannot_use_is_refused_by_name(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "file")
    store.save(Changes(budgets={"tokens": BudgetFields(BudgetRule(1, "day", "Europe/Berlin"))}))
    store.close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute("UPDATE budgets SET rule = replace(rule, 'Europe/Berlin', 'Europe/Nowhere')")
    database.commit()
    database.close()
    store = SqliteStore(tmp_path / "file")
    with pytest.raises(StoreError, match="the rule of budget 'tokens' cannot be used here: tz = 'Europe/Nowhere'"):
        store.load_budgets()
    store.close()


def test_windows_that_this_machine_cannot_use_are_refused_by_name(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "file")
    config = Config(windows=WindowRule("day", "Europe/Berlin"))
    store.save(Changes({"hits": CounterFields(0, 0, 0)}, configs={"hits": config}))
    store.close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute("UPDATE counters SET windows = replace(windows, 'Europe/Berlin', 'Europe/Nowhere')")
    database.commit()
    database.close()
    store = SqliteStore(tmp_path / "file")
    with pytest.raises(StoreError, match="the windows of counter 'hits' cannot be used here: tz = 'Europe/Nowhere'"):
        store.load()
    store.close()


@pytest.mark.parametrize(("schema", "age"), [(SCHEMA + 1, "a newer"), (SCHEMA - 1, "an older"), (1, "an older")])
def test_file_of_another_schema_is_refused_with_what_to_do_and_left_alone(
    tmp_path: Path, schema: int, age: str
) -> None:
    SqliteStore(tmp_path / "file").close()
    database = sqlite3.connect(tmp_path / "file")
    database.execute(f"PRAGMA user_version = {schema}")
    database.close()
    before = (tmp_path / "file").read_bytes()
    message = f"{age} Countless .schema {schema}; this one uses {SCHEMA}.: run that version, or set the state directory"
    with pytest.raises(StoreError, match=message):
        SqliteStore(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == before


def test_file_of_another_program_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "file")
    database.execute("PRAGMA user_version = 1")
    database.close()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(tmp_path / "file")


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, whatever its name says. " * 100)
    with pytest.raises(StoreError, match="not a database of Countless"):
        SqliteStore(tmp_path / "text")
