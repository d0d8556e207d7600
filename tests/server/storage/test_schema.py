"""State files of other versions and of other programs are refused."""

import sqlite3
from pathlib import Path

import pytest

from countless.server.storage.base import StoreError
from countless.server.storage.schema import SCHEMA
from countless.server.storage.sqlite_store import SqliteStore


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
