"""SIGTERM: a program without a handler says goodbye; a handler of the program is never replaced."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import countless
from countless.client import forks, goodbye
from support.service import TIMEOUT_S, Server, python


@pytest.fixture(autouse=True)
def handler_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_handler_of_the_program_is_never_replaced() -> None:
    def own(*_: object) -> None: ...

    for handler in (own, signal.SIG_IGN):
        signal.signal(signal.SIGTERM, handler)
        assert not goodbye.install()
        assert signal.getsignal(signal.SIGTERM) is handler


def test_handler_is_installed_once_and_from_the_main_thread_only() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(goodbye.install()))
    thread.start()
    thread.join()
    assert found == [False]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert goodbye.install()
    assert not goodbye.install()


def test_signal_while_the_lock_is_held_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the lock held by the interrupted code, the thread that delivers could not go on."""
    calls: list[str] = []
    monkeypatch.setattr(goodbye, "send_again", lambda number: calls.append("again"))
    monkeypatch.setattr(goodbye, "end", lambda number: calls.append("end"))
    monkeypatch.setattr(forks, "close_all", lambda: calls.append("close"))
    client = countless.connect("http://127.0.0.1:9")
    handler = goodbye.SigtermHandler()
    with client._lock:
        handler(signal.SIGTERM, None)
        assert calls == ["again"]
        for _ in range(goodbye.MAX_RETRIES):
            handler(signal.SIGTERM, None)
        assert calls[-2:] == ["close", "end"]  # not forever
    calls.clear()
    goodbye.SigtermHandler()(signal.SIGTERM, None)
    assert calls == ["close", "end"]
    client.close(0)


PROGRAM = """
import countless
client = countless.connect(site="pod-1")
hits = client.counter("hits")
hits.add(100_000)
client.flush()
hits.add(7)  # too few for a report
print("counted", flush=True)
while True:
    hits.add(0)  # the signal may come while it holds the lock
"""


@pytest.mark.slow
def test_plain_script_that_gets_sigterm_says_goodbye_and_ends_by_the_signal(tmp_path: Path) -> None:
    with Server(tmp_path) as server, python(PROGRAM, server.url) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == "counted\n"
        script.send_signal(signal.SIGTERM)
        assert script.wait(TIMEOUT_S) == -signal.SIGTERM
        assert server.sites() == []
        assert server.inspect("hits")["known"] == 100_007
