"""Commands wait for a coordinator that is starting on this machine, and for nothing else."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from countless.cli import coordinator
from countless.cli.coordinator import wait_for_start
from support.commands import run_command, run_waiting_command
from support.service import Server


class Clock:
    """Time passes only while the command sleeps. `at`: what happens at a second."""

    def __init__(self, at: dict[float, Callable[[], object]] | None = None) -> None:
        self.now = 1000.0
        self._at = {self.now + second: action for second, action in (at or {}).items()}

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for second in [each for each in self._at if each <= self.now]:
            self._at.pop(second)()


@pytest.fixture
def port() -> int:
    """One that refuses connections."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait(url: str, clock: Clock, **options: float) -> str | None:
    return wait_for_start(url, clock=clock, sleep=clock.sleep, **options)


def test_port_that_opens_in_time_is_waited_for(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:

        def listen() -> None:
            listener.bind(("127.0.0.1", port))
            listener.listen()

        clock = Clock({0.5: listen})
        assert wait(f"http://127.0.0.1:{port}", clock) is None
    assert 0.5 <= clock.now - 1000 < 0.6
    assert capsys.readouterr().err == ""  # nothing is printed in the first second


def test_port_that_stays_closed_is_waited_for_five_seconds_with_one_line(
    port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: list[str] = []
    clock = Clock(
        {0.95: lambda: printed.append(capsys.readouterr().err), 1.1: lambda: printed.append(capsys.readouterr().err)}
    )
    problem = wait(f"http://localhost:{port}", clock)
    assert problem == f"no coordinator at http://localhost:{port}: connection refused"
    assert 5 <= clock.now - 1000 < 5.1
    assert printed == ["", f"countless: waiting for a coordinator at http://localhost:{port}\n"]
    assert capsys.readouterr().err == ""


def test_shorter_limit_of_the_command_holds(port: int) -> None:
    clock = Clock()
    assert wait(f"http://127.0.0.1:{port}", clock, at_most=0.3) is not None
    assert clock.now - 1000 < 0.4


@pytest.mark.parametrize("url", ["http://192.0.2.1:2686", "http://counts.example", "nats://127.0.0.1:1", "what?://"])
def test_other_machines_are_not_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_connection(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(coordinator, "create_connection", no_connection)
    assert wait(url, Clock()) is None


def test_other_errors_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*arguments: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(coordinator, "create_connection", unreachable)
    clock = Clock()
    assert wait("http://127.0.0.1:9", clock) is None
    assert clock.now == 1000


@pytest.mark.slow
def test_commands_that_are_typed_before_the_coordinator_listens_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(tmp_path) as server:
        for words in ("counter create hits", "add hits", "budget create tokens --limit 9"):
            assert run_command(*words.split(), COUNTLESS_URL=server.url).returncode == 0
        for words in ("add hits 3", "take tokens 2", "get hits", "watch hits --over 0", "budget list", "site list"):
            server.stop()
            clock = Clock({2.0: server.start})
            waiting = partial(wait_for_start, clock=clock, sleep=clock.sleep)
            for module in ("coordinator", "add", "take"):
                monkeypatch.setattr(f"countless.cli.{module}.wait_for_start", waiting)
            result = run_waiting_command(*words.split(), COUNTLESS_URL=server.url)
            assert result.returncode == 0, result.stderr
            assert result.stderr.startswith(f"countless: waiting for a coordinator at {server.url}\n")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ("get hits", 2, "no coordinator at {}: connection refused"),
        ("counter create hits", 2, "no coordinator at {}: connection refused"),
        ("add hits", 1, "not delivered: no coordinator at {}: connection refused"),
        ("take tokens 2", 75, "2 of tokens: unreachable (no coordinator at {}: connection refused)"),
    ],
)
def test_without_a_coordinator_the_usual_line_follows(words: str, code: int, error: str, port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    result = run_command(*words.split(), COUNTLESS_URL=url)
    assert (result.returncode, result.stderr) == (code, f"countless: {error.format(url)}\n")
