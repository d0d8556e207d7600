"""Damaged files and full disks: one line with the file and the remedy, exit code 2, no traceback."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from countless.core.messages import SiteId
from countless.server.kinds.counter import CounterFields
from countless.server.settings import STATE_FILE, Config
from countless.server.storage import backup, health
from countless.server.storage.base import StoreError
from countless.server.storage.sqlite_store import SqliteStore
from support.commands import run_command
from support.saved import counter_changes, load_all, load_counters
from support.service import environment

PAGE_BYTES = 4096


def saved(directory: Path) -> Path:
    path = directory / STATE_FILE
    store = SqliteStore(path)
    store.save(counter_changes("hits", Config(), CounterFields(1, 5, 0), {SiteId("web", 1): 5}))
    store.checkpoint()
    store.close()
    return path


def damage(path: Path) -> None:
    """Every page but the first, which SQLite reads when it opens the file."""
    content = path.read_bytes()
    path.write_bytes(content[:PAGE_BYTES] + b"\xff" * (len(content) - PAGE_BYTES))


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def limited(*arguments: Any, **options: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*arguments, **options)
        database.execute("PRAGMA max_page_count = 1")  # no more than it has now
        return database

    monkeypatch.setattr(sqlite3, "connect", limited)


def test_damaged_pages_name_the_file_and_the_restore(tmp_path: Path) -> None:
    path = saved(tmp_path)
    damage(path)
    store = SqliteStore(path)
    for read in (lambda: load_all(store), lambda: store.tombstones(SiteId("web", 1)), store.tokens):
        with pytest.raises(StoreError, match=rf"{STATE_FILE} is damaged: .* countless restore FILE"):
            read()
    store.close()
    listed = run_command("token", "list", "--state-dir", str(tmp_path))
    assert (listed.returncode, listed.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "spoil",
    [lambda file: b"?" * len(file), lambda file: file[:100], lambda file: file[:8192], lambda file: file[:-1000]],
)
def test_file_that_was_cut_or_overwritten_is_damage_to_all_commands(
    spoil: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    path = saved(tmp_path / "state")
    assert run_command("backup", str(copy), "--state-dir", str(path.parent)).returncode == 0
    sound = copy.read_bytes()
    path.write_bytes(spoil(path.read_bytes()))
    for command in (["doctor"], ["backup", str(copy)]):
        result = run_command(*command, "--state-dir", str(path.parent))
        assert result.returncode in (1, 2)
        assert re.search(rf"{path} is damaged.*countless restore FILE", result.stdout + result.stderr), command
    assert copy.read_bytes() == sound
    copy.write_bytes(spoil(sound))
    before = path.read_bytes()
    refused = run_command("restore", str(copy), "--state-dir", str(path.parent))
    assert (refused.returncode, f"{copy} is damaged" in refused.stderr) == (2, True), refused.stderr
    assert path.read_bytes() == before
    copy.write_bytes(sound)
    assert run_command("restore", str(copy), "--state-dir", str(path.parent)).returncode == 0
    with closing(SqliteStore(path)) as store:
        assert load_counters(store)


def test_state_on_a_read_only_file_system_is_named_and_can_be_backed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after errors of a disk: what is on it goes to another machine."""
    path, copy = saved(tmp_path / "state"), tmp_path / "copy"
    connect = sqlite3.connect

    def read_only(database: object, *arguments: Any, **options: Any) -> sqlite3.Connection:
        if str(path) in str(database) and "immutable=1" not in str(database):
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorname = "SQLITE_CANTOPEN"
            raise error
        return connect(database, *arguments, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", read_only)
    for module in (health, backup):
        monkeypatch.setattr(module, "is_read_only", lambda file: file == path)
    for command in (["serve", "--port", "0"], ["token", "list"], ["doctor"]):
        result = run_command(*command, "--state-dir", str(path.parent))
        assert f"{path} cannot be written, because its file system is read-only" in result.stdout + result.stderr
    result = run_command("backup", str(copy), "--state-dir", str(path.parent))
    assert result.returncode == 0, result.stderr
    with closing(SqliteStore(copy)) as store:
        assert set(load_counters(store)) == {"hits"}


def test_file_in_place_of_a_directory_or_of_a_copy_is_named(tmp_path: Path) -> None:
    path, file = saved(tmp_path / "state"), tmp_path / "file"
    file.write_text("of another program")
    for command in (["serve", "--port", "0"], ["token", "create", "site"], ["doctor"], ["restore", str(path)]):
        result = run_command(*command, "--state-dir", str(file))
        assert f"{file} is not a directory: choose another state_dir" in result.stdout + result.stderr
    result = run_command("backup", str(file), "--state-dir", str(path.parent))
    assert (result.returncode, f"{file} is not replaced: remove it, or choose another name" in result.stderr) == (
        2,
        True,
    )
    assert file.read_text() == "of another program"


def test_wrong_values_in_sound_pages_are_damage(tmp_path: Path) -> None:
    path = saved(tmp_path)
    store = SqliteStore(path)
    load_counters(store)  # writes what is in the journal to the tables
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE rows SET value = 'many'")
    database.close()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match=r"is damaged: .*JSONDecodeError"):
        load_counters(store)
    store.close()


def test_full_disk_is_one_line(tmp_path: Path, full_disk: None) -> None:
    made = run_command("token", "create", "operator", "--state-dir", str(tmp_path))
    assert (made.returncode, made.stdout) == (2, "")
    assert f"{tmp_path / STATE_FILE} cannot be written, because the disk is full" in made.stderr


def test_unwritable_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "there"))

    copy = saved(tmp_path)
    monkeypatch.setattr(Path, "mkdir", denied)
    refused = run_command("restore", str(copy), "--state-dir", str(tmp_path / "there"))
    assert (refused.returncode, refused.stderr) == (2, f"countless: {tmp_path / 'there'}: Permission denied\n")


@pytest.mark.slow
def test_coordinator_with_a_damaged_file_ends_without_a_traceback(tmp_path: Path) -> None:
    damage(saved(tmp_path))
    command = [sys.executable, "-m", "countless.cli.main", "serve", "--port", "0", "--state-dir", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert f"countless: {tmp_path / STATE_FILE} is damaged" in ended.stderr.splitlines()[-1]
