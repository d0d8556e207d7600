"""Windows from `add` to the coordinator's answer, by example; random runs are those of the fault simulator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from countless.core.periods.window import WindowState
from countless.server.storage import commit
from countless.wire.keys import COUNTER, Key
from support.windows_clients import CALENDAR, SERIES, START_S, World, running

MINUTE = CALENDAR.period_at(START_S)
HITS = SERIES[0]


@pytest.fixture(autouse=True)
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pauses between saves."""
    monkeypatch.setattr(commit, "COMMIT_INTERVAL_S", 0.0)


def windows(world: World) -> dict[int, tuple[float, WindowState]]:
    """By minute, counted from the first: the lower bound that readers see."""
    counter = world.counter(HITS)
    assert counter is not None
    return {window.period - MINUTE: (window.lower, window.state) for window in counter.youngest()}


@asynccontextmanager
async def counting(sites: int = 2) -> AsyncIterator[World]:
    """Each site has counted five events, which the coordinator knows."""
    async with running(World(sites)) as world:
        for process in world.sites:
            process.add(HITS, 5)
        await world.deliver_all()
        yield world


async def pass_minutes(world: World, minutes: float) -> None:
    for _ in range(int(minutes * 60)):
        await world.pass_time(1.0)
        await world.deliver_all()


async def test_closed_window_is_exact_and_the_open_one_goes_on() -> None:
    async with counting() as world:
        assert windows(world) == {0: (10, WindowState.OPEN)}
        await pass_minutes(world, 1.2)
        world.sites[0].add(HITS, 3)
        await world.deliver_all()
        assert windows(world) == {0: (10, WindowState.CLOSED), 1: (3, WindowState.OPEN)}


async def test_connection_that_is_lost_between_leave_and_its_acknowledgement_changes_nothing() -> None:
    async with counting(sites=1) as world:
        (process,) = world.sites
        await world.pass_time(67.0)
        while process.up:
            await world.deliver_up(process)
        world.server.tick()
        await world.server.flush()
        assert windows(world)[0] == (5, WindowState.CLOSED)
        assert Key(COUNTER, HITS, "minute", MINUTE) in process.counters
        world.lose_connection(process)
        await world.deliver_all()
        await pass_minutes(world, 0.5)
        assert windows(world)[0] == (5, WindowState.CLOSED)
        assert Key(COUNTER, HITS, "minute", MINUTE) not in process.counters


async def test_coordinator_that_is_away_over_an_edge_gets_all_windows_afterwards() -> None:
    async with counting() as world:
        await world.kill_server()
        for _ in range(3):
            world.time += 60.0
            for process in world.sites:
                process.add(HITS, 1)
        world.start_server()
        assert windows(world)[0][1] is WindowState.INCOMPLETE
        await world.deliver_all()
        await pass_minutes(world, 1.2)
        assert {minute: window for minute, window in windows(world).items() if minute < 4} == {
            0: (10, WindowState.CLOSED),
            1: (2, WindowState.CLOSED),
            2: (2, WindowState.CLOSED),
            3: (2, WindowState.CLOSED),
        }


async def test_site_whose_clock_is_behind_keeps_the_window_incomplete_until_it_has_finished_it() -> None:
    async with counting() as world:
        world.sites[0].offset = -30.0
        await pass_minutes(world, 1.2)
        assert windows(world)[0] == (10, WindowState.INCOMPLETE)
        world.sites[0].add(HITS, 2)  # its clock still shows the first minute
        await pass_minutes(world, 0.6)
        assert windows(world)[0] == (12, WindowState.CLOSED)
