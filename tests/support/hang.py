"""A plugin of pytest: a test that hangs fails, and the failure shows where every thread and every asyncio task waits.

Where even that is caught, or the process is stuck outside of Python, `faulthandler_timeout` ends the process.
"""

import asyncio
import faulthandler
import gc
import io
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

AGAIN_S = 5.0  # code under test may catch the first


class Hang(SystemExit):
    """Event loops end with a `SystemExit` that a signal handler raises; uvloop logs what else is raised."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hang-s", type=float, default=300.0, help="a test, or a fixture, that takes longer fails")


def stacks() -> str:
    """Every thread, and every task that isn't done, of all event loops."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        threads = file.read().decode()
    tasks = io.StringIO()
    for task in (each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()):
        task.print_stack(file=tasks)
    return f"{threads}\n{tasks.getvalue()}"


@contextmanager
def _limit(config: pytest.Config) -> Iterator[None]:
    seconds: float = config.getoption("--hang-s")

    def fail(number: int, frame: object) -> None:
        raise Hang(f"not done after {seconds:g} s\n\n{stacks()}")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _limit(item.config):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _limit(item.config):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with _limit(item.config):
        yield
