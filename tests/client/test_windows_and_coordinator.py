"""Windows from `add` to the coordinator's answer: production classes, clocks that jump, kills at any step."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from countless.client.session import counters
from countless.client.session.counters import CounterState
from countless.client.session.windows import SessionWindows
from countless.core.windows.site import SiteWindows
from countless.core.windows.window import WindowState
from countless.server.storage import commit
from support.windows_clients import CALENDAR, SERIES, START_S, World, play, running

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
    return {window.period - MINUTE: (window.lower, window.state) for window in counter.windows()}


@asynccontextmanager
async def counting(sites: int = 2) -> AsyncIterator[World]:
    """Each site has counted five events, which the coordinator knows."""
    async with running(World(sites, 0, {}, None)) as world:
        for process in world.processes:
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
        world.processes[0].add(HITS, 3)
        await world.deliver_all()
        assert windows(world) == {0: (10, WindowState.CLOSED), 1: (3, WindowState.OPEN)}


async def test_connection_that_is_lost_between_leave_and_its_acknowledgement_changes_nothing() -> None:
    async with counting(sites=1) as world:
        (process,) = world.processes
        await world.pass_time(67.0)
        while process.up:
            await world.deliver_up(process)
        world.server.tick()
        await world.server.flush()
        assert windows(world)[0] == (5, WindowState.CLOSED)
        assert f"{HITS}@minute:{MINUTE}" in process.counters
        world.lose_connection(process)
        await world.deliver_all()
        await pass_minutes(world, 0.5)
        assert windows(world)[0] == (5, WindowState.CLOSED)
        assert f"{HITS}@minute:{MINUTE}" not in process.counters


async def test_coordinator_that_is_away_over_an_edge_gets_all_windows_afterwards() -> None:
    async with counting() as world:
        await world.kill_server()
        for _ in range(3):
            world.time += 60.0
            for process in world.processes:
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
        world.processes[0].offset = -30.0
        await pass_minutes(world, 1.2)
        assert windows(world)[0] == (10, WindowState.INCOMPLETE)
        world.processes[0].add(HITS, 2)  # its clock still shows the first minute
        await pass_minutes(world, 0.6)
        assert windows(world)[0] == (12, WindowState.CLOSED)


@pytest.mark.parametrize("kept", ["in memory", "in files"])
async def test_no_event_is_lost_or_in_two_windows(kept: str, tmp_path: Path) -> None:
    for seed in range(4):
        broken = await play(seed, tmp_path if kept == "in files" else None)
        assert broken is None, broken


@pytest.mark.soak
@pytest.mark.parametrize("kept", ["in memory", "in files"])
async def test_no_event_is_lost_or_in_two_windows_in_many_runs(kept: str, tmp_path: Path) -> None:
    for seed in range(1000, 1080):
        broken = await play(seed, tmp_path if kept == "in files" else None, steps=600, sites=4)
        assert broken is None, broken


def counts_in_finished_windows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SiteWindows, "present_at", lambda self, now: self.calendar.period_at(now))


def forgets_finished_windows(patch: pytest.MonkeyPatch) -> None:
    """They are not delivered."""
    patch.setattr(SessionWindows, "finish", lambda self, names: None)


def forgets_what_was_finished_on_the_last_stream(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionWindows, "new_stream", lambda self: None)


def sends_a_window_again_that_the_retired_incarnation_has_left(patch: pytest.MonkeyPatch) -> None:
    def delivered(name: str, counter: CounterState, known_counts: dict[str, int]) -> int:
        return known_counts.get(name, 0)

    patch.setattr(counters, "_delivered", delivered)


def leaves_before_earlier_windows(patch: pytest.MonkeyPatch) -> None:
    original = SessionWindows.finish

    def finish(self: SessionWindows, names: object) -> None:
        original(self, names)  # type: ignore[arg-type]
        for finished in self._finished.values():
            finished.reverse()

    patch.setattr(SessionWindows, "finish", finish)


@pytest.mark.parametrize(
    "mutant",
    [
        counts_in_finished_windows,
        forgets_finished_windows,
        forgets_what_was_finished_on_the_last_stream,
        sends_a_window_again_that_the_retired_incarnation_has_left,
        leaves_before_earlier_windows,
    ],
    ids=lambda mutant: mutant.__name__,
)
async def test_random_runs_find_mistakes(
    mutant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(30):
        broken = await play(seed, tmp_path)
        if broken is not None:
            print(broken)
            return
    raise AssertionError("no run has found it")
