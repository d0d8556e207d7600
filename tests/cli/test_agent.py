"""`countless agent` with invalid options: one line with the reason, exit 2, no socket left open."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from countless.agent import sockets
from countless.cli.main import INSTALL_SERVER, main

Run = Callable[..., str]


@pytest.fixture
def rejected(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command, which must refuse; its standard error."""

    def run(*arguments: str) -> str:
        ports = ("--statsd-port", "0", "--http-port", "0")
        monkeypatch.setattr(sys, "argv", ["countless", "agent", *ports, *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        output = capsys.readouterr()
        assert output.out == ""
        return output.err

    return run


def one_line(output: str, *parts: str) -> None:
    assert output.startswith("countless: ")
    assert output.count("\n") == 1
    assert all(part in output for part in parts), output


def test_addresses_in_use_are_refused(rejected: Run, tmp_path: Path) -> None:
    statsd, path = sockets.udp("127.0.0.1", 0), str(tmp_path / "statsd")
    http = sockets.http("127.0.0.1", 0)
    taken = [str(endpoint.getsockname()[1]) for endpoint in (statsd.socket, http)]
    one_line(rejected("--statsd-port", taken[0]), f"udp://127.0.0.1:{taken[0]}: Address already in use")
    one_line(
        rejected("--statsd-socket", path, "--http-port", taken[1]), f"http://127.0.0.1:{taken[1]}: ", "already in use"
    )
    assert not Path(path).exists()
    one_line(rejected("--statsd-socket", str(tmp_path)), f"unix:{tmp_path}: File exists")
    statsd.close()
    http.close()


def test_other_addresses_than_loopback_need_allow_plaintext(rejected: Run) -> None:
    one_line(rejected("--statsd-host", "192.0.2.1"), "statsd-host = '192.0.2.1'", "--allow-plaintext")
    one_line(rejected("--http-host", "192.0.2.1"), "http-host = '192.0.2.1'", "--allow-plaintext")
    one_line(rejected("--http-host", "192.0.2.1", "--allow-plaintext"), "Cannot assign requested address")


def test_invalid_values_are_refused(rejected: Run) -> None:
    one_line(rejected("--url", "nope://x"), "url = 'nope://x'")
    one_line(rejected("--statsd-host", "no such host"), "statsd-host = 'no such host'")
    one_line(rejected("--statsd-prefix", "a:b"), "statsd-prefix = 'a:b'")
    one_line(rejected("--site", "a\nb"), "a\\nb")
    one_line(rejected("--per", "http.*=year"), "per = 'http.*=year'", "one of minute, hour, day, month, none")
    one_line(rejected("--config", "/no/such/agent.toml"), "config = '/no/such/agent.toml'")
    one_line(rejected("--statsd-port", "65536"), "statsd-port = 65536")


def test_missing_extra_is_named(rejected: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "countless.agent.run", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    one_line(rejected(), f"uvicorn is not installed; {INSTALL_SERVER}")


def test_agent_help_has_an_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["countless", "agent", "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    output = capsys.readouterr().out
    for option in ("--url", "--token", "--site", "--statsd-host", "--statsd-socket", "--http-port"):
        assert option in output
    assert "Example:  countless agent" in output


def test_refused_agent_releases_its_ports(rejected: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as http:
        receiver = sockets.udp("127.0.0.1", 0)
        port = str(receiver.socket.getsockname()[1])
        receiver.close()
        one_line(rejected("--statsd-port", port, "--http-port", str(http.getsockname()[1])), "http://")
        sockets.udp("127.0.0.1", int(port)).close()
