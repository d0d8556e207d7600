"""The client's watch on a real coordinator: `possibly`, then `certainly`, once each."""

import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

import countless
from countless.client.watch import Watch
from countless.errors import InvalidParameter
from support.c_fork import HOOKS, in_fork
from support.service import TIMEOUT_S, Server, environment, until

pytestmark = pytest.mark.slow


class Callbacks:
    """Callbacks that record their calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self.possible = Event()

    def possibly(self, answer: countless.TotalCount) -> None:
        self.calls.append(("possibly", answer.upper))
        self.possible.set()

    def certainly(self, answer: countless.TotalCount) -> None:
        self.calls.append(("certainly", answer.lower))

    def watch(self, client: countless.Client, over: int) -> Watch:
        return client.watch("hits", over=over, possibly=self.possibly, certainly=self.certainly)


def test_possibly_is_called_before_certainly_and_each_once(server: Server) -> None:
    callbacks = Callbacks()
    with countless.connect(server.url) as client:
        watch = callbacks.watch(client, 1_000)  # the coordinator does not know the counter yet
        until(lambda: "there is no counter" in str(watch.last_error), "an answer")
        hits = client.counter("hits")
        hits.add(995)
        assert callbacks.possible.wait(TIMEOUT_S)
        assert not watch.wait(0)
        hits.add(1_000)
        assert watch.wait(TIMEOUT_S)
        hits.add(1_000)
    assert [name for name, _ in callbacks.calls] == ["possibly", "certainly"]
    assert all(bound > 1_000 for _, bound in callbacks.calls)
    assert "over 1,000: certainly" in repr(watch)


@pytest.mark.parametrize("hooks", HOOKS)
def test_watch_ends_in_a_forked_child_and_goes_on_in_its_parent(
    server: Server, hooks: str, caplog: pytest.LogCaptureFixture
) -> None:
    callbacks = Callbacks()
    with countless.connect(server.url) as client:
        hits = client.counter("hits")
        hits.add()
        assert client.flush()
        watch = callbacks.watch(client, 1_000)
        until(lambda: watch._debug_state()["streaming"], "the stream")
        caplog.set_level("INFO", "countless")

        def child() -> list[object]:
            client.connected  # noqa: B018 - takes the lock, and so finds out about the fork
            watch.close()
            return [watch.wait(TIMEOUT_S), watch._debug_state()["streaming"]]

        assert in_fork(hooks, child) == [False, False]
        hits.add(2_000)
        assert watch.wait(TIMEOUT_S)
    assert "interrupted" not in caplog.text


def test_total_far_past_the_threshold_calls_both(server: Server) -> None:
    callbacks = Callbacks()
    with countless.connect(server.url) as client:
        client.counter("hits").add(5_000)
        assert client.flush()
        assert callbacks.watch(client, 1_000).wait(TIMEOUT_S)
        assert client.watch("hits", over=1_000).wait(TIMEOUT_S)  # without callbacks
    assert [name for name, _ in callbacks.calls] == ["possibly", "certainly"]


def test_watch_survives_a_restart_of_the_coordinator(server: Server) -> None:
    callbacks = Callbacks()
    with countless.connect(server.url) as client:
        client.counter("hits").add(995)
        assert client.flush()
        watch = callbacks.watch(client, 1_000)
        assert callbacks.possible.wait(TIMEOUT_S)
        server.kill()
        until(lambda: watch.last_error, "an error")
        client.counter("hits").add(100)
        server.start()
        assert client.flush(TIMEOUT_S)
        assert watch.wait(TIMEOUT_S)
    assert [name for name, _ in callbacks.calls] == ["possibly", "certainly"]


def test_failing_callback_is_logged_and_the_watch_continues(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    def failing(answer: countless.TotalCount) -> None:
        raise RuntimeError("mine")

    with countless.connect(server.url) as client:
        client.counter("hits").add(10)
        assert client.flush()
        assert client.watch("hits", over=5, possibly=failing).wait(TIMEOUT_S)
    assert "watch callback failed: counter='hits' callback=possibly" in caplog.text


def test_closing_the_client_ends_its_watches(server: Server) -> None:
    callbacks = Callbacks()
    client = countless.connect(server.url)
    client.counter("hits").add(1)
    assert client.flush()
    watch = callbacks.watch(client, 1_000)
    until(lambda: watch._debug_state()["streaming"], "the watch is connected")
    client.close()
    until(lambda: not watch._debug_state()["running"], "the thread ends")
    assert callbacks.calls == []


def new_token(state: Path, scope: str) -> str:
    command = [
        sys.executable,
        "-m",
        "countless.cli.main",
        "token",
        "create",
        scope,
        "--label",
        scope,
        "--state-dir",
        str(state),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout.strip()


def test_watch_needs_a_token_of_scope_read(tmp_path: Path) -> None:
    site, read = (new_token(tmp_path, scope) for scope in ("site", "read"))
    with Server(tmp_path, closed=True) as server, countless.connect(server.url, token=site) as client:
        client.counter("hits").add(10)
        assert client.flush()
        refused = client.watch("hits", over=5)
        until(lambda: "scope read is needed" in str(refused.last_error), "an error")
        assert client.watch("hits", over=5, token=read).wait(TIMEOUT_S)


@pytest.mark.parametrize("over", [-1, 1.5, "many"])
def test_invalid_threshold_is_refused(over: int) -> None:
    with pytest.raises(InvalidParameter, match="over"):
        countless.connect("http://127.0.0.1:9").watch("hits", over=over)


def test_disabled_client_watches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    assert not countless.connect("http://127.0.0.1:9").watch("hits", over=5).wait(0)
