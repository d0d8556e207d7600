"""A real coordinator for tests that kill processes."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from support.service import Server


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
