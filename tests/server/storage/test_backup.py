"""Copies of the state file: complete, marked as copies, and refused where they would destroy something."""

import fcntl
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from countless.core.messages import SiteId
from countless.server import app
from countless.server.kinds.counter import CounterFields
from countless.server.settings import STATE_FILE, Config
from countless.server.storage import backup
from countless.server.storage.backup import back_up, check, end_restore, is_copy, restore, tokens_of
from countless.server.storage.base import StoreError, Token
from countless.server.storage.rows import Changes
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import RESTORED_LABEL
from countless.token_file import OPERATOR_TOKEN_FILE, write_token
from support.commands import run_command
from support.saved import counter_changes, load_counters

CONFIG = Config(0.01, 0.05, "auto", "adaptive", 10)


def changes(count: int) -> Changes:
    return counter_changes("hits", CONFIG, CounterFields(1, float(count), 0), {SiteId("web", 1): count})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A file that a store still has open, with its last save in the WAL."""
    path = tmp_path / "state" / STATE_FILE
    store = SqliteStore(path)
    store.save(changes(7))
    store.close()
    return path


def known(path: Path) -> int:
    store = SqliteStore(path)
    try:
        return load_counters(store)["hits"][1].known[0][1]
    finally:
        store.close()


def test_copy_of_a_file_in_use_has_all_that_was_saved(state: Path, tmp_path: Path) -> None:
    store, copy = SqliteStore(state), tmp_path / "copy"
    store.save(changes(8))
    assert back_up(state, copy) == copy.stat().st_size
    store.save(changes(9))
    store.close()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "state"]  # no WAL, no part
    assert (known(copy), known(state)) == (8, 9)
    assert (is_copy(copy), is_copy(state)) == (True, False)


def test_restored_file_is_a_copy_until_the_restore_has_ended(state: Path, tmp_path: Path) -> None:
    back_up(state, tmp_path / "copy")
    store = SqliteStore(state)
    store.save(changes(9))
    former = restore(tmp_path / "copy", state)
    store.close()
    assert former is not None
    assert (known(state), known(former / STATE_FILE)) == (7, 9)
    assert is_copy(state)
    end_restore(state)
    assert not is_copy(state)
    assert restore(tmp_path / "copy", tmp_path / "elsewhere.sqlite") is None


def test_later_copy_replaces_an_earlier_one_and_no_other_file(state: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy", tmp_path / "other"
    back_up(state, copy)
    back_up(state, copy)
    other.write_text("a letter")
    for target in (other, state):
        with pytest.raises(StoreError):
            back_up(state, target)
    with pytest.raises(StoreError, match="nothing to copy"):
        back_up(tmp_path / "nothing", copy)
    assert (other.read_text(), known(copy)) == ("a letter", 7)


def test_damaged_copy_is_refused_and_the_state_stays(state: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    back_up(state, copy)
    content = bytearray(copy.read_bytes())
    content[4096 : 3 * 4096] = bytes(2 * 4096)
    copy.write_bytes(content)
    result = run_command("restore", str(copy), "--state-dir", str(state.parent))
    assert (result.returncode, "damaged" in result.stderr) == (2, True), result.stderr
    assert known(state) == 7


def test_damaged_state_does_not_replace_the_last_copy(state: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    back_up(state, copy)
    content = bytearray(state.read_bytes())
    content[-4096:] = b"\xff" * 4096
    state.write_bytes(content)
    result = run_command("backup", str(copy), "--state-dir", str(state.parent))
    assert (result.returncode, f"{state} is damaged, and {copy} was not written" in result.stderr) == (2, True)
    assert result.stderr.count("\n") == 1
    assert known(copy) == 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "state"]
    assert run_command("restore", str(copy), "--state-dir", str(state.parent)).returncode == 0
    assert known(state) == 7


def test_copy_that_does_not_fit_on_the_disk_changes_nothing(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above all not the state: without its file, the coordinator would start from nothing."""
    copy = tmp_path / "copy"
    back_up(state, copy)

    def full(path: Path) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "_sync", full)
    for command in (["backup", str(tmp_path / "other")], ["restore", str(copy)]):
        result = run_command(*command, "--state-dir", str(state.parent))
        assert (result.returncode, "No space left on device" in result.stderr) == (2, True), result.stderr
    assert sorted(path.name for path in state.parent.iterdir()) == ["countless.lock", STATE_FILE]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "state"]
    assert known(state) == 7


def test_restore_that_was_killed_between_its_renames_is_noticed_and_repeated(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator must not begin from nothing: budgets would be granted again."""
    copy = tmp_path / "copy"
    back_up(state, copy)
    assert run_command("token", "create", "site", "--label", "later", "--state-dir", str(state.parent)).returncode == 0

    def killed(part: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(backup, "_put", killed)
        assert run_command("restore", str(copy), "--state-dir", str(state.parent)).returncode == 130
    started = run_command("serve", "--state-dir", str(state.parent), "--port", "0")
    assert (started.returncode, "a countless restore was interrupted; run it again" in started.stderr) == (2, True)
    assert not state.exists()
    token = run_command(
        "token", "create", "site", "--state-dir", str(state.parent)
    )  # must not make an empty state either
    assert (token.returncode, "a countless restore was interrupted" in token.stderr) == (2, True)
    assert not state.exists()
    restored = run_command("restore", str(copy), "--state-dir", str(state.parent))
    assert restored.returncode == 0
    assert "made since are refused" not in restored.stdout  # the copy beside its place had the tokens of the state
    assert known(state) == 7
    assert {token.label for token in tokens_of(state)} == {"later", RESTORED_LABEL}


@pytest.mark.parametrize("size", [0, None])
def test_coordinator_whose_state_file_is_lost_does_not_begin_from_nothing(
    size: int | None, state: Path, tmp_path: Path
) -> None:
    """A file of no bytes is what some file systems leave after a power cut."""
    copy = tmp_path / "copy"
    back_up(state, copy)
    assert (
        run_command("token", "create", "site", "--state-dir", str(state.parent)).returncode == 0
    )  # writes to the audit log
    state.unlink()
    if size is not None:
        state.touch()
    found = f"{state} is {'missing' if size is None else 'empty'}, and a coordinator has used it before: restore"
    for command in (["serve", "--port", "0"], ["token", "list"], ["doctor"], ["token", "create", "site"]):
        result = run_command(*command, "--state-dir", str(state.parent))
        assert result.returncode in (1, 2)
        assert found in result.stdout + result.stderr, command
    lost = run_command("backup", str(copy), "--state-dir", str(state.parent))
    assert (lost.returncode, lost.stderr.count("\n")) == (2, 1)
    assert run_command("restore", str(copy), "--state-dir", str(state.parent)).returncode == 0
    assert known(state) == 7


def test_restore_that_finds_no_room_for_the_tokens_leaves_the_former_state(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy would not have the tokens made since; and a second attempt would not find them."""
    copy = tmp_path / "copy"
    back_up(state, copy)
    assert run_command("token", "create", "site", "--label", "later", "--state-dir", str(state.parent)).returncode == 0
    before = tokens_of(state)

    def full(store: SqliteStore, token: Token) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "add_token", full)
        failed = run_command("restore", str(copy), "--state-dir", str(state.parent))
    assert (failed.returncode, failed.stderr) == (2, "countless: the disk is full\n")
    assert not [path for path in state.parent.iterdir() if "part" in path.name or "before" in path.name]
    assert tokens_of(state) == before
    assert not is_copy(state)
    assert run_command("restore", str(copy), "--state-dir", str(state.parent)).returncode == 0
    assert before[0] in tokens_of(state)
    assert is_copy(state)


async def test_end_of_a_restore_is_saved_when_the_disk_has_room_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = iter([StoreError("the disk is full"), StoreError("the disk is full"), None])

    def end(path: Path) -> None:
        if error := next(attempts):
            raise error

    monkeypatch.setattr(app, "end_restore", end)
    monkeypatch.setattr(app, "MAX_TICK_S", 0.0)
    server: Any = SimpleNamespace(budgets=SimpleNamespace(restoring=False))
    await app.end_of_restore(server, Path())
    assert next(attempts, "all were made") == "all were made"
    assert caplog.text.count("the next start would begin it again: error=the disk is full") == 1


def test_files_that_root_makes_belong_to_the_owner_of_the_directory(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has to write them, and must be the one that listens when commands send the operator's token."""
    back_up(state, tmp_path / "copy")
    given: list[tuple[int, int]] = []
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.chown", lambda made, user, group: given.append((user, group)))
    owner = state.parent.stat()
    write_token(state.parent / OPERATOR_TOKEN_FILE, "countless-operator-x")
    assert run_command("restore", str(tmp_path / "copy"), "--state-dir", str(state.parent)).returncode == 0
    made = ["token", "lock", "copy", "before-restore", "audit.log", "a new token"]
    assert given == [(owner.st_uid, owner.st_gid)] * len(made)


def test_restore_under_a_running_coordinator_is_refused(state: Path, tmp_path: Path) -> None:
    back_up(state, tmp_path / "copy")
    with (state.parent / "countless.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run_command("restore", str(tmp_path / "copy"), "--state-dir", str(state.parent))
    assert (result.returncode, "in use by another coordinator" in result.stderr) == (2, True), result.stderr


def test_doctor_finds_damaged_pages_and_names_the_remedy(state: Path) -> None:
    check(state)
    content = bytearray(state.read_bytes())
    content[-4096:] = b"\xff" * 4096
    state.write_bytes(content)
    result = run_command("doctor", "--config", "/dev/null", COUNTLESS_STATE_DIR=str(state.parent), COUNTLESS_PORT="0")
    assert result.returncode == 1, result.stdout
    assert "countless restore FILE" in result.stdout
