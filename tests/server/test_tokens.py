"""How tokens are made, rotated and kept in files; the operator's first one."""

import re
from contextlib import closing
from errno import ENOSPC
from pathlib import Path
from time import time

import pytest

from countless.cli import token as token_commands
from countless.errors import InvalidParameter
from countless.server.settings import STATE_FILE
from countless.server.storage.base import StoreError, Token
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import (
    FIRST_LABEL,
    RESTORED_LABEL,
    digest,
    expire_all,
    first_operator_token,
    new_token,
    replace_in_file,
    successor,
)
from countless.token_file import OPERATOR_TOKEN_FILE, read_token, write_token
from support.commands import run_command


@pytest.fixture
def store() -> SqliteStore:
    return SqliteStore(None)


def test_first_start_makes_one_operator_token_for_the_owner_of_the_directory(
    store: SqliteStore, tmp_path: Path
) -> None:
    directory = tmp_path / "state"
    new_token(store, "site", "fleet")  # does not lock the operator out
    path = first_operator_token(store, directory)
    assert path == directory / OPERATOR_TOKEN_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    token = store.token(digest(read_token(path)))
    assert token is not None
    assert (token.scope, token.expires) == ("operator", None)
    assert first_operator_token(store, directory) is None
    assert store.revoke(token.label) == 1
    assert first_operator_token(store, directory) == path  # only who can read the directory can use it
    assert store.token(digest(read_token(path))) is not None
    store.close()


def test_first_token_is_not_stored_if_its_file_cannot_be_written(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        first_operator_token(store, tmp_path / "file" / "state")
    assert store.tokens() == []
    store.close()


def test_token_that_cannot_be_written_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left") as failed:
        write_token(tmp_path / OPERATOR_TOKEN_FILE, "countless-operator-x")
    assert failed.value.filename == str(tmp_path / OPERATOR_TOKEN_FILE)
    assert list(tmp_path.iterdir()) == []


def test_rotated_token_replaces_the_former_after_the_overlap(store: SqliteStore, tmp_path: Path) -> None:
    former = new_token(store, "site", "fleet", "web", expires_in=1000)
    write_token(tmp_path / OPERATOR_TOKEN_FILE, former)
    token, digests = successor(store, "fleet")
    expire_all(store, digests, overlap_s=60)
    old, new = store.token(digest(former)), store.token(digest(token))
    assert old is not None
    assert new is not None
    assert digests == {digest(former)}
    assert (new.scope, new.site, new.label) == ("site", "web", "fleet")
    assert new.expires == new.created + 1000
    assert new.created + 58 <= (old.expires or 0) <= new.created + 62
    assert replace_in_file(tmp_path, digests, token) == tmp_path / OPERATOR_TOKEN_FILE
    assert read_token(tmp_path / OPERATOR_TOKEN_FILE) == token
    assert replace_in_file(tmp_path, digests, token) is None  # it has another already
    for label in ("unknown", ""):
        with pytest.raises(InvalidParameter, match="label of a valid token"):
            successor(store, label)
    new_token(store, "read", "fleet")
    with pytest.raises(InvalidParameter, match=r"can't rotate label .* differ in scope or site"):
        successor(store, "fleet")
    store.close()


def test_expiry_and_uses_only_move_one_way(store: SqliteStore) -> None:
    store.add_token(Token(b"d", "read", None, "", 5))
    store.expire(b"d", 100)
    store.expire(b"d", 200)
    store.note_uses({b"d": 50, b"unknown": 7})
    store.note_uses({b"d": 40})
    assert store.tokens() == [Token(b"d", "read", None, "", 5, 100, 50)]
    assert [store.tokens()[0].valid_at(second) for second in (99, 100)] == [True, False]
    store.close()


def test_last_use_by_a_clock_that_was_ahead_is_replaced_by_the_next() -> None:
    now = 1000.0
    store = SqliteStore(None, lambda: now)
    store.add_token(Token(b"d", "read", None, "", 5))
    for now, last_used in ((9000.0, 9000), (1010.0, 1010), (1020.0, 1020)):
        store.note_uses({b"d": int(now)})
        assert store.tokens()[0].last_used == last_used
    store.close()


def test_restored_copy_gets_the_tokens_that_the_former_state_had(tmp_path: Path) -> None:
    """Also one that the operator's file has; if the copy does not know that, the file gets a new one."""
    state, copy = tmp_path / "state", tmp_path / "copy"
    with closing(SqliteStore(state / STATE_FILE)) as store:
        first_operator_token(store, state)
        web, gone = new_token(store, "site", "web"), new_token(store, "read", "gone")
        assert run_command("backup", str(copy), "--state-dir", str(state)).returncode == 0
        assert store.revoke("gone") == 1
        operators, former = successor(store, FIRST_LABEL)
        replace_in_file(state, former, operators)
        expire_all(store, former, 0.0)
        later, again = new_token(store, "site", "later"), new_token(store, "read", "gone")
    restored = run_command("restore", str(copy), "--state-dir", str(state))
    (line,) = re.findall(r"^  countless (token revoke .*?)  # read, 'gone'$", restored.stdout, re.MULTILINE)
    assert "new token" not in restored.stdout
    with closing(SqliteStore(state / STATE_FILE)) as store:
        valid = {token.digest for token in store.tokens() if token.valid_at(time())}
    assert valid == {digest(each) for each in (web, gone, operators, later, again)}
    assert run_command(*line.split()).stdout == "1 revoked\n"  # as it is printed; others with this label stay
    with closing(SqliteStore(state / STATE_FILE)) as store:
        assert store.token(digest(gone)) is None
        assert store.token(digest(again)) is not None
    (state / STATE_FILE).unlink()
    restored = run_command("restore", str(copy), "--state-dir", str(state))
    assert f"{state / OPERATOR_TOKEN_FILE} holds a new token for the operator.\n" in restored.stdout
    assert "programs with a newer token are refused" in restored.stdout
    assert "tokens revoked since are valid again" in restored.stdout
    with closing(SqliteStore(state / STATE_FILE)) as store:
        found = store.token(digest(read_token(state / OPERATOR_TOKEN_FILE)))
    assert found is not None
    assert (found.scope, found.label) == ("operator", RESTORED_LABEL)


def no_space(*arguments: object, **options: object) -> None:
    raise OSError(ENOSPC, "No space left on device")


def test_rotation_that_a_full_disk_stops_leaves_all_tokens_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise commands on this machine are locked out when the former token ends."""
    with closing(SqliteStore(tmp_path / STATE_FILE)) as store:
        first_operator_token(store, tmp_path)
    rotation = ("token", "rotate", FIRST_LABEL, "--overlap", "0s", "--state-dir", str(tmp_path))

    def valid() -> set[bytes]:
        with closing(SqliteStore(tmp_path / STATE_FILE)) as store:
            return {token.digest for token in store.tokens() if token.valid_at(time())}

    first = valid()
    with monkeypatch.context() as patch:
        patch.setattr("countless.server.tokens.write_token", no_space)
        stopped = run_command(*rotation)
    assert (stopped.returncode, stopped.stderr.count("\n")) == (2, 1)
    assert "but so are the old ones: run it again; " in stopped.stderr
    assert valid() == {*first, digest(stopped.stdout.strip())}
    again = run_command(*rotation)
    assert valid() == {digest(again.stdout.strip())} == {digest(read_token(tmp_path / OPERATOR_TOKEN_FILE))}


@pytest.mark.parametrize("action", ["create", "rotate"])
def test_token_that_cannot_be_shown_is_revoked(action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def show() -> None:
        if action == "create":
            token_commands.create("site", label="web", state_dir=tmp_path)
        else:
            token_commands.rotate("web", state_dir=tmp_path)

    with closing(SqliteStore(tmp_path / STATE_FILE)) as store:
        new_token(store, "site", "web")
        before = store.tokens()
        monkeypatch.setattr("builtins.print", no_space)
        with pytest.raises(OSError, match="No space left on device: 'standard output'"):
            show()
        assert store.tokens() == before


@pytest.mark.parametrize("text", ["", "\n", "a\nb", "ä", "a\0b"])
def test_token_that_cannot_be_sent_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidParameter) as refused:
        read_token(tmp_path / "token")
    assert text.strip() not in str(refused.value) or len(text.strip()) < 2
