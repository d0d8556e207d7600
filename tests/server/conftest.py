"""A real coordinator for tests that kill processes."""

import signal
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from support.proxy import Proxy
from support.service import Server
from support.taker import RULE, StartTaker, Taker


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state"), "--silent-after", "1s") as server:
        yield server


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """One for all tests, because a start takes a while. It has no counters when a test begins."""
    yield shared
    if shared.process.poll() is not None:
        shared.start()
    names = {counter["counter"].partition("{")[0] for counter in shared.reader.counters()}
    for name in sorted(names):  # with their labelled series
        shared.reader.request("DELETE", f"/api/v1/counters/{quote(name)}")


@pytest.fixture
def tokens(server: Server) -> Iterator[Server]:
    """With a budget."""
    server.reader.request("POST", "/api/v1/budgets", RULE)
    yield server
    server.reader.request("DELETE", "/api/v1/budgets/tokens")


@pytest.fixture
def start() -> Iterator[StartTaker]:
    """Starts processes that take units, and kills them at the end of the test."""
    takers: list[Taker] = []

    def start(server: Server | Proxy, name: str, **variables: str) -> Taker:
        takers.append(Taker(server.url, name, **variables))
        return takers[-1]

    yield start
    for taker in takers:
        taker.process.send_signal(signal.SIGCONT)
        taker.kill()
