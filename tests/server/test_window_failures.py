"""Windows of real processes that are killed around an edge: nothing is lost, and nothing is in two windows.

Minutes begin at a second that is chosen so that an edge comes soon. The programs write the truth into a file of their
own, before and after each event: how many events of each minute they have counted at least, and at most.
"""

import mmap
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any

import pytest

from countless.core.calendar import Calendar
from countless.randomness import SeededRandom
from support.service import TIMEOUT_S, Server, python, until

SITES = 3
MINUTES = 20  # far more than it takes
MAX_UNCERTAIN = 30  # events: one for each kill, and one for each site at the edge
SECONDS_TO_EDGE = 4  # from when all processes have started
COUNTING = """
import countless, mmap, os, threading, time
from countless.core.calendar import Calendar

truth = memoryview(mmap.mmap(os.open(os.environ["TRUTH"], os.O_RDWR), 4096)).cast("Q")
client = countless.connect()
print("ready", flush=True)
anchor, first = map(int, input().split())
minutes = Calendar("minute", "UTC", anchor)
counter = client.counter("requests", per="minute", anchor=anchor)
stopped = threading.Event()

def minute():
    return 2 * (minutes.period_at(time.time()) - first)

def work():
    while not stopped.wait(0.0005):
        before = minute()
        truth[before + 1] += 1
        truth[before + 3] += 1  # the clock may show the next minute when the event is counted
        counter.add()
        if minute() == before:
            truth[before] += 1
            truth[before + 3] -= 1

thread = threading.Thread(target=work)
thread.start()
print("counting", flush=True)
input()
stopped.set()
thread.join()
print(client.close(90), flush=True)
"""


class Site:
    """A program that counts until it is killed or told to leave, and what it has truly counted."""

    def __init__(self, server: Server, directory: Path, name: str) -> None:
        self._server = server
        self._name = name
        self._truth = directory / f"{name}.truth"
        self._state_dir = directory / name
        self._truth.write_bytes(bytes(4096))
        self._variables = {
            "COUNTLESS_SITE": name,
            "COUNTLESS_CLIENT_STATE_DIR": str(self._state_dir),
            "TRUTH": str(self._truth),
        }
        self._launch()

    def _launch(self) -> None:
        self._process = python(COUNTING, self._server.url, **self._variables)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def count(self, anchor: int, first: int) -> None:
        """From now on; `first` is the number of the first minute."""
        self._minutes = f"{anchor} {first}"
        self._begin()

    def _begin(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(self._minutes, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "counting\n"

    def start(self) -> None:
        self._launch()
        self._begin()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def leave(self) -> None:
        """When all that its killed predecessors have counted is delivered, too."""
        until(lambda: len(list(self._state_dir.iterdir())) == 1, f"the recovery by {self._name}")
        output, _ = self._process.communicate("\n", timeout=2 * TIMEOUT_S)
        assert output == "True\n"

    def _end(self, number: int) -> None:
        self._process.send_signal(number)
        self._process.communicate(timeout=TIMEOUT_S)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def counted(self) -> list[tuple[int, int]]:
        """By minute: at least, and at most."""
        file = os.open(self._truth, os.O_RDONLY)
        with mmap.mmap(file, 4096, prot=mmap.PROT_READ) as words:
            numbers = memoryview(words).cast("Q").tolist()
        os.close(file)
        return [(numbers[2 * minute], numbers[2 * minute + 1]) for minute in range(MINUTES)]


class World:
    """A coordinator and sites, and the moment of the next edge."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.server = server
        self.sites = [Site(server, directory, f"web-{n}") for n in range(SITES)]
        now = int(time())
        self.edge = now + SECONDS_TO_EDGE
        self._calendar = Calendar("minute", "UTC", self.edge % 60)
        self.first = self._calendar.period_at(now)
        for site in self.sites:
            site.count(self._calendar.anchor, self.first)

    def at(self, seconds: float) -> None:
        """Wait until so many seconds after the edge."""
        until(lambda: time() >= self.edge + seconds, f"{seconds} s after the edge")

    def complete_windows(self) -> dict[int, dict[str, Any]] | None:
        """By minute, once the oldest is complete: the one before the edge, unless no site had counted by then."""
        windows: list[dict[str, Any]] = self.server.reader.request("GET", "/api/v1/windows/requests")["windows"]
        periods = {self._calendar.period_at(self._calendar.moment(window["start"])): window for window in windows}
        complete = {period - self.first: window for period, window in periods.items() if window["complete"]}
        return complete if periods and min(periods) - self.first in complete else None


@contextmanager
def world(directory: Path) -> Iterator[World]:
    with Server(directory / "coordinator", "--silent-after", "30s") as server:
        made = World(server, directory)
        try:
            yield made
        finally:
            for site in made.sites:
                if site.running:
                    site.kill()


def check(made: World) -> None:
    for site in made.sites:
        site.leave()
    windows = until(made.complete_windows, "an exact count of the window before the edge")
    counted = [site.counted() for site in made.sites]
    least = [sum(site[minute][0] for site in counted) for minute in range(MINUTES)]
    most = [sum(site[minute][1] for site in counted) for minute in range(MINUTES)]
    for minute, window in windows.items():
        assert window["state"] == "exact"
        assert least[minute] <= window["estimate"] <= most[minute]
    # Of an event that a kill came across it is not known whether it was counted, and of one at the edge, in which
    # minute. Every site has left, so all that is known is all that was counted.
    assert 0 < sum(least) <= made.server.inspect("requests")["known"] <= sum(least) + MAX_UNCERTAIN


@pytest.mark.slow
def test_sites_and_coordinator_that_are_killed_around_an_edge_lose_nothing(tmp_path: Path) -> None:
    with world(tmp_path) as made:
        made.at(-1.5)
        made.sites[0].kill()
        made.at(-0.8)
        made.server.kill()
        made.at(0.4)
        made.sites[1].kill()
        made.server.start()
        made.sites[0].start()
        made.sites[1].start()
        made.at(1.5)
        check(made)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_random_kills_around_an_edge_lose_nothing(tmp_path: Path, seed: int) -> None:
    rng = SeededRandom(seed)
    with world(tmp_path) as made:
        away = False
        for step in range(20):
            made.at(-2 + step / 5)
            victim = rng.randbelow(2 * SITES)
            if victim < SITES:
                made.sites[victim].kill()
                made.sites[victim].start()
            elif victim == SITES and not away:
                made.server.kill()
                away = True
            elif away:
                made.server.start()
                away = False
        if away:
            made.server.start()
        check(made)
