"""`Budget(rolling=...)` against an exact check of every interval: all short runs, and random ones.

The mutants are mistakes that are easily made with panes: the same runs must find each of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate, product
from math import inf
from random import Random

import pytest

import countless
from countless.core.budget import rolling
from countless.core.budget.hold import Hold
from countless.core.budget.messages import Ask, Pane
from countless.core.budget.rolling import PANES, Returns, RollingSite
from countless.core.messages import SiteName
from countless.errors import InvalidParameter, LimitExceeded

WINDOW_S = 60.0


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Taken:
    """The units that were taken, and when."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.units: list[int] = []

    def add(self, time: float, units: int) -> None:
        self.times.append(time)
        self.units.append(units)

    def most_in(self, length: float) -> int:
        """In any interval of this length, its ends included."""
        sums = [0, *accumulate(self.units)]
        ends = [bisect_right(self.times, time + length) for time in self.times]
        return max((sums[end] - sums[start] for start, end in enumerate(ends)), default=0)

    def since(self, time: float) -> int:
        return sum(self.units[bisect_left(self.times, time) :])


# All short runs, of two sites, with panes of two seconds

SHORT_LIMIT, SHORT_WINDOW_S, SHORT_PANES = 4, 4.0, 2  # with a limit below 4 no site is lent anything
ACTIONS = ("a", "b", "a takes all", "one second", "b leaves")


def short_run_violation(actions: tuple[str, ...]) -> bool:
    clock, taken = Clock(), Taken()
    budget = countless.Budget(SHORT_LIMIT, ["a", "b"], slack=0, rolling=SHORT_WINDOW_S, clock=clock)
    for action in actions:
        if action == "one second":
            clock.seconds += 1
        elif action == "b leaves":
            budget.remove_site("b")
            budget.add_site("b")
        elif budget.site(action[0]).take(SHORT_LIMIT if action == "a takes all" else 1):
            taken.add(clock.seconds, SHORT_LIMIT if action == "a takes all" else 1)
    return taken.most_in(SHORT_WINDOW_S) > SHORT_LIMIT


def short_runs(length: int) -> Iterator[tuple[str, ...]]:
    """All runs of this many steps; a step of time may be several seconds. The first step takes something."""
    steps = (*((action,) for action in ACTIONS), ("one second",) * 3, ("one second",) * 4)
    for first, *others in product((("a",), ("b",)), *[steps] * (length - 1)):
        yield sum(others, first)


@pytest.mark.slow
def test_no_short_run_takes_more_than_the_limit_in_any_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "PANES", SHORT_PANES)
    assert not any(short_run_violation(run) for run in short_runs(5))


@pytest.mark.soak
def test_no_longer_run_takes_more_than_the_limit_in_any_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "PANES", SHORT_PANES)
    assert not any(short_run_violation(run) for run in short_runs(7))


def comes_back_a_pane_too_early(patch: pytest.MonkeyPatch) -> None:
    original = RollingSite._counts_until
    patch.setattr(RollingSite, "_counts_until", lambda self, pane: original(self, pane) - self.length / rolling.PANES)


def counts_from_the_first_moment_of_a_pane(patch: pytest.MonkeyPatch) -> None:
    original = RollingSite._add

    def add(self: RollingSite, moment: float) -> None:
        original(self, self.ends_at - self.length / rolling.PANES)

    patch.setattr(RollingSite, "_add", add)


def frees_what_was_handed_over(patch: pytest.MonkeyPatch) -> None:
    original = Returns.add
    patch.setattr(Returns, "add", lambda self, moment, units: original(self, moment - SHORT_WINDOW_S, units))


def hands_over_with_too_large_an_age(patch: pytest.MonkeyPatch) -> None:
    original = RollingSite._hand_over

    def hand_over(self: RollingSite) -> tuple[Pane, ...]:
        return tuple(pane._replace(age=pane.age + 1) for pane in original(self))

    patch.setattr(RollingSite, "_hand_over", hand_over)


def keeps_what_it_hands_over(patch: pytest.MonkeyPatch) -> None:
    original = RollingSite.resend

    def resend(self: RollingSite) -> Ask:
        before = self.handed_over
        ask = original(self)
        self.limit += self.handed_over - before
        return ask

    patch.setattr(RollingSite, "resend", resend)


def hands_over_without_saying_so(patch: pytest.MonkeyPatch) -> None:
    original = RollingSite._hand_over

    def hand_over(self: RollingSite) -> tuple[Pane, ...]:
        original(self)
        self.handed_over = 0
        return ()

    patch.setattr(RollingSite, "_hand_over", hand_over)


MUTANTS = (
    comes_back_a_pane_too_early,
    counts_from_the_first_moment_of_a_pane,
    frees_what_was_handed_over,
    hands_over_with_too_large_an_age,
    keeps_what_it_hands_over,
    hands_over_without_saying_so,
)


@pytest.mark.parametrize("mutate", MUTANTS)
def test_short_runs_find_the_mutant(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "PANES", SHORT_PANES)
    mutate(monkeypatch)
    assert any(short_run_violation(run) for run in short_runs(5))


# Random runs


def random_run(seed: int, steps: int = 1500) -> None:
    """Sites come and go, holds are settled, the load changes. At every refusal, enough was taken not long ago."""
    rng = Random(seed)  # noqa: S311
    clock, taken = Clock(), Taken()
    limit, slack = rng.choice((1, 5, 40, 1000)), rng.choice((0.0, 0.01, 0.1))
    budget = countless.Budget(limit, rng.randint(1, 5), slack, rolling=WINDOW_S, clock=clock)
    largest, load, leave = max(1, limit // 8), 1.0, rng.choice((0.0, 0.01))
    holds: list[tuple[SiteName, Hold]] = []
    for _ in range(steps):
        if rng.random() < 0.01:
            load = rng.choice((0.2, 1.0, 3.0, 30.0))
        n = rng.choice((1, 1, 1, rng.randint(1, largest)))
        clock.seconds += rng.expovariate(load * limit / (1 + largest / 8) / WINDOW_S)
        name, chance = rng.choice(budget.sites), rng.random()
        if chance < leave:
            budget.remove_site(name)
            budget.add_site(name)
            taken.add(clock.seconds, sum(hold.units for site, hold in holds if site == name))
            holds = [(site, hold) for site, hold in holds if site != name]
        elif chance < 0.05 and holds:
            hold = holds.pop(rng.randrange(len(holds)))[1]
            used = rng.randint(0, hold.units)
            hold.settle(used)
            taken.add(clock.seconds, used)
        elif chance < 0.1:
            with suppress(LimitExceeded):
                holds.append((name, budget.site(name).reserve(n)))
        elif budget.site(name).take(n):
            taken.add(clock.seconds, n)
        else:
            recent = taken.since(clock.seconds - WINDOW_S * (1 + 2 / PANES) - 1e-5)
            left = limit - recent - sum(hold.units for _, hold in holds)
            assert leave or left <= max(slack * limit, n - 1), f"seed {seed}: {left} of {limit} left at a refusal"
        held = sum(hold.units for _, hold in holds)
        assert held + taken.since(clock.seconds - WINDOW_S) <= limit, f"seed {seed}"
    assert taken.most_in(WINDOW_S) <= limit, f"seed {seed}"


def play(seeds: range) -> None:
    for seed in seeds:
        random_run(seed)


@pytest.mark.slow
def test_random_runs_keep_the_limit_in_every_interval_and_use_it() -> None:
    play(range(20))


def returns_only_what_is_asked_for(patch: pytest.MonkeyPatch) -> None:
    """Units that came back stay at their site, although others were refused."""
    original = RollingSite.proceed

    def proceed(self: RollingSite) -> tuple[Ask, ...]:
        if not self.want and not self._reply:
            self._repeating = False
            return ()
        return original(self)

    patch.setattr(RollingSite, "proceed", proceed)


def returns_only_after_its_own_requests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RollingSite, "next_at", inf)


@pytest.mark.parametrize("mutate", [returns_only_what_is_asked_for, returns_only_after_its_own_requests])
def test_random_runs_find_the_mutant(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError, match="left at a refusal"):
        play(range(20))


@pytest.mark.soak
def test_many_random_runs_keep_the_limit_in_every_interval_and_use_it() -> None:
    play(range(20, 1000))


@pytest.mark.slow
@pytest.mark.parametrize("load", [1.2, 5.0])
def test_overloaded_sites_use_nearly_all_with_few_messages(load: float) -> None:
    clock, taken, rng = Clock(), Taken(), Random(3)  # noqa: S311
    budget = countless.Budget(1000, 3, rolling="1m", clock=clock)
    first_window = None
    while clock.seconds < 6 * WINDOW_S:
        clock.seconds += rng.expovariate(load * 1000 / WINDOW_S)
        if clock.seconds > WINDOW_S and first_window is None:
            first_window = budget.messages.total
        if budget.site(rng.randrange(3)).take():
            taken.add(clock.seconds, 1)
    assert taken.most_in(WINDOW_S) <= 1000
    assert len(taken.times) >= 0.93 * 6 * 1000
    assert budget.messages.total - (first_window or 0) < 5 * 500  # one for each request would be 5 * 1,000 * load


# What a program sees


def test_refusal_says_when_own_units_come_back() -> None:
    clock = Clock()
    site = countless.Budget(5, 1, rolling="1m", clock=clock).site(0)
    assert site.take(3)
    clock.seconds = 20.0
    assert site.take(2)
    decision = site.take()
    assert decision.retry_after == pytest.approx(40.0 + WINDOW_S / PANES, abs=1e-3)
    clock.seconds += decision.retry_after or 0.0
    assert site.take(3)
    assert not site.take()


def test_units_handed_over_count_to_the_end_of_an_interval_although_sums_are_rounded() -> None:
    for hundredths in range(100, 1000, 5):
        clock = Clock()
        budget = countless.Budget(10, 1, slack=0, rolling=1.0, clock=clock)
        clock.seconds = hundredths / 100
        assert budget.site(0).take(10)
        assert not budget.site(0).take()  # it hands over what it took
        clock.seconds += 1.0
        assert not budget.site(0).take()


def test_unit_that_came_back_can_be_taken_at_another_site() -> None:
    clock = Clock()
    budget = countless.Budget(5, 2, slack=0, rolling=60, clock=clock)
    assert budget.site(0).take(5)
    assert not budget.site(1).take()
    clock.seconds = 61.0
    assert budget.site(1).take(5)
    assert not budget.site(0).take()
    assert (budget.spent, budget.resets_at) == (5, None)


def test_settled_units_come_back_a_window_after_the_settlement() -> None:
    clock = Clock()
    budget = countless.Budget(10, 2, slack=0, rolling=60, clock=clock)
    hold = budget.site(0).reserve(10)
    clock.seconds = 100.0
    assert not budget.site(1).take()
    hold.settle(6)
    assert budget.site(1).take(4)
    clock.seconds = 159.0
    assert not budget.site(1).take()
    clock.seconds = 165.0
    assert budget.site(1).take(10)


def test_clock_that_goes_back_keeps_units_longer() -> None:
    clock = Clock()
    budget = countless.Budget(1, 1, slack=0, rolling=60, clock=clock)
    clock.seconds = 1000.0
    assert budget.site(0).take()
    clock.seconds = 0.0
    assert not budget.site(0).take()
    clock.seconds = 1059.0
    assert not budget.site(0).take()
    clock.seconds = 1064.0
    assert budget.site(0).take()


def test_budget_that_was_not_used_is_reset_any_number_of_times() -> None:
    budget = countless.Budget(limit=10, sites=1, slack=0.0, rolling=WINDOW_S, clock=Clock())
    for _ in range(2):
        budget.reset()
        budget.reset()
        assert budget.site(0).take(10)
        assert not budget.site(0).take()


def test_reset_forgives_everything() -> None:
    clock = Clock()
    budget = countless.Budget(10, 2, slack=0, rolling=60, clock=clock)
    hold = budget.site(0).reserve(3)
    assert budget.site(0).take(3)
    assert budget.remove_site(0) == 6
    assert budget.site(1).take(4)
    budget.reset()
    hold.settle(3)
    assert budget.spent == 0
    assert budget.site(1).take(10)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"rolling": 0.5}, "rolling"),
        ({"rolling": "367d"}, "rolling"),
        ({"rolling": "a minute"}, "rolling"),
        ({"rolling": True}, "rolling"),
        ({"rolling": 60, "per": "minute"}, "rolling"),
    ],
)
def test_windows_outside_their_range_are_refused(arguments: dict[str, object], name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name} "):
        countless.Budget(5, **arguments)  # type: ignore[arg-type]
