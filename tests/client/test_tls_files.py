"""Files for TLS that cannot be read are named, by the command and by the client."""

from pathlib import Path

import pytest

from countless.client.transport.base import ConnectionLost
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from support.commands import run_command

URL = "https://127.0.0.1:9"


@pytest.mark.parametrize("variable", ["COUNTLESS_CA", "COUNTLESS_CERT"])
@pytest.mark.parametrize("content", [None, "no certificate"])
def test_file_that_cannot_be_read_is_named(
    variable: str, content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_text(content)
    told = f"{variable} = '{file}' is not a readable PEM file"
    result = run_command("get", "x", "--url", URL, **{variable: str(file)})
    assert (result.returncode, result.stderr.startswith(f"countless: {told}")) == (2, True), result.stderr
    monkeypatch.setenv(variable, str(file))
    with pytest.raises(ConnectionLost, match=variable):
        WebSocketConnection(Endpoint.parse(URL), None)
