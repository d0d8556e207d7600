"""A real coordinator for the tests that kill things."""

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
    """One for all, because a start takes a while; every test finds it without counters."""
    yield shared
    if shared.process.poll() is not None:
        shared.start()
    for counter in list(shared.reader.counters()):
        shared.reader.request("DELETE", f"/api/v1/counters/{quote(counter['counter'])}")
