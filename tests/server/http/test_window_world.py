"""Sites that count by minutes, a coordinator that is restarted, and what readers see: always the truth between bounds.

The sites are those of the core, the clock is virtual, and every event is remembered.
"""

from bisect import bisect_left
from random import Random
from typing import Any

import pytest

from countless.core.answer import State
from countless.core.messages import SetTrigger, SiteId, StartRound
from countless.core.periods.spans import count_of_span
from countless.core.periods.window import WindowRule
from countless.core.site import Site
from countless.randomness import SeededRandom
from countless.server.http.answers.windows import rolling_answer, window_answer
from countless.server.http.history.history import Recorder
from countless.server.kinds.counter import WindowedCounter
from countless.server.settings import Config
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import Join, Leave
from support.site_server import FakeConnection, SiteServerHarness, site_server

START = 1_800_000_000.0
LAG_S = 5.0  # after the end of a window, sites finish it one after the other


class CountingSite:
    """One process that counts `hits` per minute."""

    def __init__(self, name: str, lag_s: float) -> None:
        self.name = name
        self.lag_s = lag_s
        self.windows: dict[int, Site] = {}

    async def connect(self, harness: SiteServerHarness) -> None:
        self.harness = harness
        self.session, self.connection = await harness.connect(self.name)
        for site in self.windows.values():
            await self._send(Join(site.counter, site.round, site.count))

    async def count(self, now: float, number: int) -> None:
        period = int(now // 60)
        if period not in self.windows:
            wire_name = f"hits@minute:{period}"
            self.windows[period] = Site(wire_name, SiteId(self.name, 1), SeededRandom(period))
            await self._send(Join(wire_name, 0, 0))
        site = self.windows[period]
        await self._send(*site.advance(site.count + number))

    async def finish(self, now: float) -> None:
        for period in sorted(self.windows):
            if now >= (period + 1) * 60 + self.lag_s:
                site = self.windows.pop(period)
                await self._send(Leave(site.counter, site.round, site.count))

    async def _send(self, *items: Any) -> None:
        received = await self.harness.send(self.session, self.connection, *items) if items else []
        await self.receive(received)

    async def receive(self, received: list[Any]) -> None:
        for item in received:
            if isinstance(item, (StartRound, SetTrigger)):
                site = self.windows.get(int(item.counter.partition(":")[2]))
                if site is not None:
                    await self._send(*site.receive(item))


async def deliver(sites: list[CountingSite]) -> None:
    """What a message of one site made the coordinator send to others."""
    for site in sites:
        connection: FakeConnection = site.connection
        waiting = list(connection.received)
        connection.received.clear()
        await site.receive(waiting)


class Clock:
    seconds = START

    def __call__(self) -> float:
        return self.seconds


async def run(harness: SiteServerHarness, clock: Clock, sites: list[CountingSite], events: list[float]) -> int:
    """Five minutes, from a start or a restart of the coordinator; how often the answers were checked."""
    random, checked = Random(len(events)), 0  # noqa: S311
    recorder = Recorder(harness.server, clock=clock, steady=clock)
    recorder.tick()
    for site in sites:
        await site.connect(harness)
    await deliver(sites)
    end = clock.seconds + 300
    while clock.seconds < end:
        clock.seconds += random.expovariate(1.0)
        for site in sites:
            await site.finish(clock.seconds)
        site, number = random.choice(sites), random.choice([0, 1, 5, 30])
        events += [clock.seconds] * number
        await site.count(clock.seconds, number)
        for _ in range(3):
            await deliver(sites)
        await harness.advance(0.1)
        recorder.tick()
        if random.random() < 0.2:
            checked += check(harness, recorder, events, clock.seconds)
    return checked


@pytest.mark.slow
@pytest.mark.parametrize("floor", [0, pytest.param(200, marks=pytest.mark.soak)])
async def test_readers_see_the_truth_between_the_bounds(floor: int) -> None:
    events, store, clock = list[float](), MemoryStore(), Clock()
    config = Config(alpha=0.2, scheme="deterministic", windows=WindowRule("minute", keep=4, floor=floor))
    sites = [CountingSite(f"web-{number}", number * LAG_S) for number in range(3)]
    async with site_server(store, wall_clock=clock) as harness:
        harness.server.create("hits", config)
        checked = await run(harness, clock, sites, events)
    async with site_server(store, wall_clock=clock) as harness:
        assert await run(harness, clock, sites, events) > 30
    assert checked > 30
    assert len(events) > 1000


def check(harness: SiteServerHarness, recorder: Recorder, events: list[float], now: float) -> int:
    def true(start: float, end: float) -> int:
        return bisect_left(events, end) - bisect_left(events, start)

    counter = harness.server.counter("hits")
    assert isinstance(counter, WindowedCounter)
    if counter.published_answer.state not in (State.EXACT, State.HOLDING):
        return 0
    for name in ("now", "last", "this-hour", "today", "yesterday"):
        window = window_answer(counter, name)
        start, end = (counter.calendar.moment(text) for text in (window.start, window.end))
        assert window.lower <= true(start, end) <= window.upper, (name, now)
        assert window.lower <= window.estimate <= window.upper
        if window.complete and window.known_since is None:
            assert window.lower == window.upper
            assert window.state is State.EXACT
    for start, end in ((now - 250, now - 130), (now - 60 - now % 60, now - now % 60), (START, now - 300)):
        span = count_of_span(counter, start, max(start, end), now, counter.windows_between(start, end))
        assert span.lower <= true(start, max(start, end)) <= span.upper
    for length in (1, 10, 60, 150, 300, 3600):
        rolling = rolling_answer(counter, recorder, f"{length}s")
        assert rolling.lower <= true(now - length, now + 1) <= rolling.upper, (length, now)
    return 1
