"""The client's watch on a real coordinator: possibly, then certainly, once each, whatever happens on the way."""

import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import countless
from countless.client.watch import Watch
from countless.errors import InvalidParameter
from support.service import PATIENCE, Server, environment, until

pytestmark = pytest.mark.slow


class Told:
    """What the callbacks were told."""

    def __init__(self) -> None:
        self.words: list[tuple[str, float]] = []
        self.possible = Event()

    def possibly(self, answer: dict[str, Any]) -> None:
        self.words.append(("possibly", answer["upper"]))
        self.possible.set()

    def certainly(self, answer: dict[str, Any]) -> None:
        self.words.append(("certainly", answer["lower"]))

    def watch(self, client: countless.Client, over: int) -> Watch:
        return client.watch("hits", over=over, possibly=self.possibly, certainly=self.certainly)


def test_possibly_comes_before_certainly_and_each_comes_once(server: Server) -> None:
    told = Told()
    with countless.connect(server.url) as client:
        watch = told.watch(client, 1_000)  # nobody has heard of the counter yet
        until(lambda: "there is no counter" in str(watch.last_error), "a first answer")
        hits = client.counter("hits")
        hits.add(995)
        assert told.possible.wait(PATIENCE)
        assert not watch.wait(0)
        hits.add(1_000)
        assert watch.wait(PATIENCE)
        hits.add(1_000)
    assert [word for word, _ in told.words] == ["possibly", "certainly"]
    assert all(bound > 1_000 for _, bound in told.words)
    assert "over 1,000: certainly" in repr(watch)


def test_a_jump_past_the_mark_says_both(server: Server) -> None:
    told = Told()
    with countless.connect(server.url) as client:
        client.counter("hits").add(5_000)
        assert client.flush()
        assert told.watch(client, 1_000).wait(PATIENCE)
        assert client.watch("hits", over=1_000).wait(PATIENCE)  # without callbacks
    assert [word for word, _ in told.words] == ["possibly", "certainly"]


def test_it_goes_on_when_the_coordinator_is_killed_and_comes_back(server: Server) -> None:
    told = Told()
    with countless.connect(server.url) as client:
        client.counter("hits").add(995)
        assert client.flush()
        watch = told.watch(client, 1_000)
        assert told.possible.wait(PATIENCE)
        server.kill()
        until(lambda: watch.last_error, "trouble")
        client.counter("hits").add(100)
        server.start()
        assert client.flush(PATIENCE)
        assert watch.wait(PATIENCE)
    assert [word for word, _ in told.words] == ["possibly", "certainly"]


def test_a_callback_that_fails_is_logged_and_the_watch_goes_on(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(answer: dict[str, Any]) -> None:
        raise RuntimeError("not mine")

    with countless.connect(server.url) as client:
        client.counter("hits").add(10)
        assert client.flush()
        assert client.watch("hits", over=5, possibly=failing).wait(PATIENCE)
    assert "callback 'possibly' of the watch of 'hits' failed" in caplog.text


def test_closing_the_client_ends_its_watches(server: Server) -> None:
    told = Told()
    client = countless.connect(server.url)
    client.counter("hits").add(1)
    assert client.flush()
    watch = told.watch(client, 1_000)
    until(lambda: watch._stream, "it listens")
    client.close()
    watch._thread.join(PATIENCE)
    assert not watch._thread.is_alive()
    assert told.words == []


def new_token(state: Path, scope: str) -> str:
    command = [sys.executable, "-m", "countless.cli.main", "token", scope, "--label", scope, "--state-dir", str(state)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout.strip()


def test_reading_needs_a_token_that_may_read(tmp_path: Path) -> None:
    site, read = (new_token(tmp_path, scope) for scope in ("site", "read"))
    with Server(tmp_path) as server, countless.connect(server.url, token=site) as client:
        client.counter("hits").add(10)
        assert client.flush()
        refused = client.watch("hits", over=5)
        until(lambda: "scope read is needed" in str(refused.last_error), "trouble")
        assert client.watch("hits", over=5, token=read).wait(PATIENCE)


@pytest.mark.parametrize("over", [-1, 1.5, "many"])
def test_a_mark_that_is_none_is_refused(over: int) -> None:
    with pytest.raises(InvalidParameter, match="over"):
        countless.connect("http://127.0.0.1:9").watch("hits", over=over)


def test_a_client_that_is_switched_off_watches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    assert not countless.connect("http://127.0.0.1:9").watch("hits", over=5).wait(0)
