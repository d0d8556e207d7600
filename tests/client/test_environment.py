"""Which token a client shows: never that of a coordinator on this machine to another machine."""

import os
import socket
from pathlib import Path

import pytest

from countless.client.transport.endpoint import Endpoint, token_for
from countless.errors import InvalidParameter
from countless.token_file import OPERATOR_TOKEN_FILE, listening_users, write_token

USUAL, GIVEN = "countless-operator-usual", "countless-operator-given"
HERE, THERE = Endpoint.parse("http://127.0.0.1:2686"), Endpoint.parse("https://counts.example")


def test_token_comes_from_the_call_the_environment_a_file_or_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert token_for(HERE) is None
    write_token(tmp_path / "countless-state" / OPERATOR_TOKEN_FILE, USUAL)
    assert [token_for(Endpoint.parse(url)) for url in ("127.0.0.1", "localhost:1", "ws://[::1]:7")] == [USUAL] * 3
    assert (token_for(THERE), token_for(Endpoint.parse("10.0.0.1"))) == (None, None)
    write_token(tmp_path / "elsewhere" / OPERATOR_TOKEN_FILE, GIVEN)
    monkeypatch.setenv("COUNTLESS_STATE_DIR", "elsewhere")
    assert token_for(HERE) == GIVEN
    monkeypatch.setenv("COUNTLESS_STATE_DIR", "nowhere")
    assert token_for(HERE) is None  # not that of another coordinator
    (tmp_path / "file").write_text("from a file\n")
    monkeypatch.setenv("COUNTLESS_TOKEN_FILE", "file")
    assert (token_for(HERE), token_for(THERE)) == ("from a file",) * 2
    (tmp_path / "file").write_text("rotated\n")
    assert token_for(THERE) == "rotated"
    monkeypatch.setenv("COUNTLESS_TOKEN", "variable")
    assert (token_for(THERE), token_for(THERE, "call")) == ("variable", "call")
    monkeypatch.delenv("COUNTLESS_TOKEN")
    monkeypatch.setenv("COUNTLESS_TOKEN_FILE", "missing")
    with pytest.raises(InvalidParameter, match="token file = 'missing'"):
        token_for(HERE)


def test_token_is_not_sent_where_another_user_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_token(tmp_path / "countless-state" / OPERATOR_TOKEN_FILE, USUAL)
    for users, sent in ((set(), USUAL), ({0, os.getuid()}, USUAL), ({os.getuid() + 1}, None), ({0, 4711}, None)):
        monkeypatch.setattr("countless.token_file.listening_users", lambda port, users=users: users)
        assert token_for(HERE) == sent


def test_user_of_a_unit_whose_files_are_shown_as_those_of_another_is_found_in_its_runtime_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As systemd 257 does with DynamicUser and StateDirectory. A program of the user that is shown gets no token."""
    runtime, private = tmp_path / "run", tmp_path / "private"
    write_token(private / "countless" / OPERATOR_TOKEN_FILE, USUAL)
    (tmp_path / "countless").symlink_to(private / "countless")
    monkeypatch.setenv("COUNTLESS_STATE_DIR", str(tmp_path / "countless"))
    monkeypatch.setattr("countless.token_file.OVERFLOW_USER", os.getuid())  # the owner of the files here
    monkeypatch.setattr("countless.token_file.DYNAMIC_USERS_DIR", private.resolve())
    monkeypatch.setattr("countless.token_file.SERVICE_RUNTIME_DIR", runtime)
    listening = 61_184
    monkeypatch.setattr("countless.token_file.listening_users", lambda port: {listening})
    assert token_for(HERE) is None  # the unit does not run
    runtime.mkdir()
    assert token_for(HERE) is None  # another user listens
    listening = os.getuid()
    assert token_for(HERE) == USUAL
    runtime.rmdir()
    listening = 4711
    assert token_for(HERE) is None


def test_owners_of_listening_programs_are_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listening_users(port) == {os.getuid()}
    assert listening_users(port) == set()


def test_link_or_another_secret_in_the_state_directory_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "countless-state" / OPERATOR_TOKEN_FILE
    write_token(file, "secret of another program")
    assert token_for(HERE) is None
    write_token(tmp_path / "elsewhere", USUAL)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    assert token_for(HERE) is None
    file.unlink()
    os.mkfifo(file)
    assert token_for(HERE) is None
