"""One coordinator and one browser for all tests of the page that run in a process.

The browser keeps an event loop running, so tests with loops of their own could not run while it is open: it is closed
before the first test that is not of the page.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from support.browser import Window, browser, window
from support.page_state import populate
from support.service import Server

_opened, _browsers = ExitStack(), list[Browser]()


@pytest.fixture(scope="module")
def chromium() -> Browser:
    if not _browsers:
        _browsers.append(_opened.enter_context(browser()))
    return _browsers[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _opened.close()
        _browsers.clear()


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
