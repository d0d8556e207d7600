"""Windows at the coordinator against an exact count for each site's clock and window, with faults of every kind.

`World` (tests/support/window_world.py) lists what happens and what is checked. The mutants are mistakes that are easily
made with windows: the random runs must find each of them.
"""

from collections.abc import Callable

import pytest

from countless.core.periods.window import WindowState
from countless.server.kinds.counter import WindowedCounter
from countless.server.sessions.periodic import PeriodicFields
from countless.server.sessions.published_windows import PublishedWindows
from countless.server.sessions.session_table import Session
from countless.server.storage import commit
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import Publish, Rows, Tombstone, What, alone
from support.window_world import play


@pytest.fixture(autouse=True)
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pauses between saves."""
    monkeypatch.setattr(commit, "COMMIT_INTERVAL_S", 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [False, True])
async def test_closed_windows_are_exact_and_no_event_is_lost_or_in_two_windows(labels: bool) -> None:
    for seed in range(12):
        broken = await play(seed, labels=labels)
        assert broken is None, broken


@pytest.mark.soak
@pytest.mark.parametrize("labels", [False, True])
async def test_closed_windows_are_exact_in_many_long_runs(labels: bool) -> None:
    for seed in range(1000, 1400):
        broken = await play(seed, steps=600, sites=5, labels=labels)
        assert broken is None, broken


def closes_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """A window is closed when its own sites have left it."""

    def state(self: PublishedWindows, period: int, lost: int) -> WindowState:
        return WindowState.INCOMPLETE if lost or period in self.open else WindowState.CLOSED

    patch.setattr(PublishedWindows, "state", state)


def forgets_the_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "has_left", lambda self, key: key in self.left)


def does_not_save_the_watermark(patch: pytest.MonkeyPatch) -> None:
    original = CommitPipeline.add_tombstones

    def add_tombstones(self: CommitPipeline, *tombstones: Tombstone) -> None:
        original(self, *(each for each in tombstones if each.what is not What.WATERMARK))

    patch.setattr(CommitPipeline, "add_tombstones", add_tombstones)


def forgets_lost_sites(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WindowedCounter, "lose_site", lambda *_: None)


def drops_without_adding_to_before(patch: pytest.MonkeyPatch) -> None:
    original = WindowedCounter.drop_windows

    def drop_windows(self: WindowedCounter) -> None:
        before = self.before
        original(self)
        self.before = before

    patch.setattr(WindowedCounter, "drop_windows", drop_windows)


def opens_again_from_zero(patch: pytest.MonkeyPatch) -> None:
    original = WindowedCounter.open_window

    def open_window(self: WindowedCounter, period: int) -> object:
        if self.closed.get(period) is not None:
            self.closed = self.closed.without(period)
        return original(self, period)

    patch.setattr(WindowedCounter, "open_window", open_window)


def does_not_save_what_was_published(patch: pytest.MonkeyPatch) -> None:
    original = WindowedCounter.take

    def take(self: WindowedCounter, rows: Rows) -> Publish:
        publish = original(self, rows)
        if "windows" in rows.get(self.key, {}):
            rows[self.key]["windows"] = alone(PeriodicFields(self.first, self.before, 0))
        return publish

    patch.setattr(WindowedCounter, "take", take)


# With a seed that finds it today. If the runs change, others are tried.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "first"),
    [
        (closes_out_of_order, 34),
        (forgets_the_watermark, 0),
        (does_not_save_the_watermark, 4),
        (forgets_lost_sites, 0),
        (drops_without_adding_to_before, 1),
        (opens_again_from_zero, 2),
        (does_not_save_what_was_published, 2),
    ],
)
async def test_mutant_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in (first, *range(100)):
        if await play(seed):
            return
    pytest.fail("no run has found it")
