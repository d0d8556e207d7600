"""Which token a client shows: never that of a coordinator on this machine to another machine."""

from pathlib import Path

import pytest

from countless.client.environment import token_for
from countless.client.transport.endpoint import Endpoint
from countless.errors import InvalidParameter
from countless.token_file import OPERATOR_TOKEN_FILE, write_token

HERE, THERE = Endpoint.parse("http://127.0.0.1:2686"), Endpoint.parse("https://counts.example")


def test_token_comes_from_the_call_the_environment_a_file_or_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert token_for(HERE) is None
    write_token(tmp_path / "countless-state" / OPERATOR_TOKEN_FILE, "usual")
    assert [token_for(Endpoint.parse(url)) for url in ("127.0.0.1", "localhost:1", "ws://[::1]:7")] == ["usual"] * 3
    assert (token_for(THERE), token_for(Endpoint.parse("10.0.0.1"))) == (None, None)
    write_token(tmp_path / "elsewhere" / OPERATOR_TOKEN_FILE, "given directory")
    monkeypatch.setenv("COUNTLESS_STATE_DIR", "elsewhere")
    assert token_for(HERE) == "given directory"
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
