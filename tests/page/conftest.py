"""One coordinator for all tests of the page that run in a process, and one browser for each module.

The browser keeps an event loop running, so tests with loops of their own could not run while it is open.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from support.browser import Window, browser, window
from support.page_state import populate
from support.service import Server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as launched:
        yield launched


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("state")
    populate(directory, sites=200)
    with Server(directory, "--silent-after", "1s") as server:
        yield server


@pytest.fixture
def server(shared: Server) -> Server:
    return shared


@pytest.fixture
def tab(chromium: Browser, server: Server) -> Iterator[Window]:
    with window(chromium) as opened:
        yield opened
