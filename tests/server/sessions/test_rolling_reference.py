"""Rolling budgets against an exact count of what is taken in every window.

`RollingWorld` (tests/support/rolling_world.py) lists what happens and what is checked. The mutants are mistakes that
are easily made: the random runs must find each of them.
"""

from collections.abc import Callable, Iterable
from itertools import count
from math import inf

import pytest

from countless.client.budgets.local_periods import LocalPeriods, NewLocal
from countless.client.session import protocol
from countless.core.budget.messages import Pane
from countless.core.budget.rolling import PANES, RollingSite
from countless.core.messages import SiteId
from countless.server.kinds.rolling_units import RollingUnits
from countless.server.storage import commit
from support.rolling_world import WINDOW_S, play

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run for the same seed, without pauses between saves."""
    numbers = count(1 << 40)
    monkeypatch.setattr(protocol, "new_incarnation", lambda *_: next(numbers))
    monkeypatch.setattr(commit, "COMMIT_INTERVAL_S", 0.0)


async def test_no_window_is_overspent_and_everything_comes_back() -> None:
    for seed in range(6):
        broken = await play(seed)
        assert broken is None, broken
    for seed in (6, 7, 10):  # a Sync was not acknowledged in them once
        broken = await play(seed, sites=1, weights=FEW_FAULTS)
        assert broken is None, broken


@pytest.mark.soak
async def test_no_window_is_overspent_in_many_long_runs() -> None:
    for seed in range(6, 250):
        broken = await play(seed, steps=1000, sites=4)
        assert broken is None, broken


def admits_when_the_lease_has_ended(patch: pytest.MonkeyPatch) -> None:
    original = LocalPeriods.__init__

    def without_lease(self: LocalPeriods, name: str, site_id: SiteId, new_local: NewLocal, contact: object) -> None:
        original(self, name, site_id, new_local, lambda: inf)

    patch.setattr(LocalPeriods, "__init__", without_lease)


def frees_lost_sites_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RollingUnits, "free_at", lambda self, last_seen: last_seen)


def frees_what_was_handed_over(patch: pytest.MonkeyPatch) -> None:
    original = RollingUnits.add_handed_over

    def add_handed_over(self: RollingUnits, panes: Iterable[Pane]) -> None:
        original(self, [Pane(WINDOW_S + 3, units) for _, units in panes])

    patch.setattr(RollingUnits, "add_handed_over", add_handed_over)


def frees_what_was_saved(patch: pytest.MonkeyPatch) -> None:
    original = RollingUnits.save
    patch.setattr(RollingUnits, "save", lambda self: tuple((-3.0, units) for _, units in original(self)))


def forgets_what_was_saved(patch: pytest.MonkeyPatch) -> None:
    """It counts for ever."""
    patch.setattr(RollingUnits, "save", lambda self: ())


def comes_back_half_a_window_too_early(patch: pytest.MonkeyPatch) -> None:
    original = RollingSite._counts_until
    patch.setattr(RollingSite, "_counts_until", lambda self, pane: original(self, pane) - self.length / 2)


def is_handed_over_with_too_large_an_age(patch: pytest.MonkeyPatch) -> None:
    original = RollingSite._hand_over

    def hand_over(self: RollingSite) -> tuple[Pane, ...]:
        return tuple(Pane(age + WINDOW_S / 4, units) for age, units in original(self))

    patch.setattr(RollingSite, "_hand_over", hand_over)


def counts_from_the_first_moment_of_a_pane(patch: pytest.MonkeyPatch) -> None:
    """What was taken without a call counts as taken when the units were set aside."""
    original = RollingSite._add
    patch.setattr(RollingSite, "_add", lambda self, moment: original(self, self.ends_at - self.length / PANES))


FEW_FAULTS = {"exchange": 500, "lose": 4, "leave": 1, "kill": 1, "kill coordinator": 1}
LOST_SITES = {"exchange": 450, "lose": 60, "leave": 0, "kill": 0, "kill coordinator": 0}
# With a seed that finds it today. If the runs change, others are tried.
MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], dict[str, int], int]] = [
    (admits_when_the_lease_has_ended, FEW_FAULTS, 35),
    (frees_lost_sites_at_once, LOST_SITES, 6),
    (frees_what_was_handed_over, {}, 2),
    (is_handed_over_with_too_large_an_age, {}, 0),
    (frees_what_was_saved, {"kill": 40}, 0),
    (forgets_what_was_saved, {}, 2),
    (comes_back_half_a_window_too_early, {}, 3),
    (counts_from_the_first_moment_of_a_pane, FEW_FAULTS, 0),
]


@pytest.mark.parametrize(("mutate", "weights", "first"), MUTANTS)
async def test_random_runs_find_the_mutant(
    mutate: Callable[[pytest.MonkeyPatch], None], weights: dict[str, int], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    for seed in (first, *range(60)):
        if await play(seed, weights=weights) is not None:
            return
    raise AssertionError("no random run has found it")
