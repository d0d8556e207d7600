"""Attempts to break the bound below the floor: every small case, long random ones, and mutants that must be caught.

Messages arrive at once. Late, lost and repeated ones are in test_machine.py, which has a floor too.
"""

import pickle
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core import rounds
from countless.core.answer import State, within
from countless.core.estimator import Effect, RoundContext, RoundSetup
from countless.core.floor import NAME, BelowFloor, open_below_floor
from countless.core.ledger import Entry
from countless.core.messages import SiteId
from countless.core.triggers import GeometricGrowth
from countless.schemes.deterministic import Deterministic
from countless.schemes.registry import scheme_named
from support.worlds import HeldWorld, requested


class Case:
    """A world, and what may still happen in it."""

    def __init__(self, alpha: float, floor: int, *, expected: int, sites: int, leaves: int, restarts: int) -> None:
        self.world = HeldWorld(Deterministic(), (), alpha=alpha, floor=floor, expected_sites=expected)
        self.alpha, self.floor = alpha, floor
        self.joins, self.leaves, self.restarts = sites, leaves, restarts

    def steps(self, beyond: int) -> list[Callable[["Case"], None]]:
        sites = list(self.world.sites)
        found: list[Callable[[Case], None]] = []
        if self.world.total < self.floor + beyond:
            found += [partial(Case.add, site_id=site_id) for site_id in sites]
        if self.joins:
            found.append(Case.join)
        if self.leaves:
            found += [partial(Case.leave, site_id=site_id) for site_id in sites]
        if self.restarts:
            found.append(Case.restart)
        return found

    def add(self, site_id: SiteId) -> None:
        self.world.add(site_id)

    def join(self) -> None:
        self.joins -= 1
        self.world.join(SiteId("site", self.joins))

    def leave(self, site_id: SiteId) -> None:
        self.leaves -= 1
        self.world.leave(site_id)

    def restart(self) -> None:
        self.restarts -= 1
        self.world.restart()


def explore(case: Case, beyond: int = 3) -> float:
    """Take every step in every order until the total is so far `beyond` the floor; return the largest relative error.

    So it includes the adversary that knows everything and makes the error as large as it can.
    """
    first = pickle.dumps(case)
    seen, todo, worst = {first}, [first], 0.0
    while todo:
        state = todo.pop()
        for step in pickle.loads(state).steps(beyond):  # noqa: S301
            case = pickle.loads(state)  # noqa: S301
            step(case)
            case.world.deliver_all()
            estimate, total = case.world.coordinator.published, case.world.total
            assert within(estimate, case.alpha, total, case.floor), case.world.coordinator
            worst = max(worst, abs(estimate - total) / max(total, case.floor))
            after = pickle.dumps(case)
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return worst


SMALL = [
    Case(0.25, 8, expected=3, sites=3, leaves=0, restarts=0),
    Case(0.25, 8, expected=1, sites=2, leaves=1, restarts=0),
    Case(0.25, 4, expected=1, sites=2, leaves=1, restarts=1),
    Case(0.4, 5, expected=2, sites=2, leaves=0, restarts=1),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.alpha}, floor {case.floor}, {case.joins} sites")
def test_every_small_case_is_within_alpha_of_total_or_floor(case: Case) -> None:
    assert explore(case) == pytest.approx(case.alpha)  # the allowance is used up, and never exceeded


@pytest.mark.soak
@pytest.mark.parametrize(
    ("alpha", "floor"), [(0.25, floor) for floor in range(1, 13)] + [(0.1, 12), (0.4, 3), (0.4, 8)]
)
def test_every_case_with_three_sites_is_within_alpha_of_total_or_floor(alpha: float, floor: int) -> None:
    assert explore(Case(alpha, floor, expected=3, sites=3, leaves=0, restarts=0)) <= alpha * (1 + 1e-12)


@pytest.mark.soak
@pytest.mark.parametrize(("alpha", "floor"), [(0.25, 8), (0.4, 5)])
def test_every_case_with_a_departure_and_a_restart_is_within_alpha(alpha: float, floor: int) -> None:
    assert explore(Case(alpha, floor, expected=1, sites=3, leaves=1, restarts=1), 2) <= alpha * (1 + 1e-12)


class PublishesTheKnownTotal(BelowFloor):
    def _update_estimate(self) -> Effect | None:
        effect = super()._update_estimate()
        self.estimate = self._least
        return effect


class ForgetsWhatJoinersHide(BelowFloor):
    def join(self, entry: Entry) -> None:
        self._add(entry.round_start, 0)


class StepTooLarge(BelowFloor):
    def __init__(self, step: int, slots: int, alpha: float, floor: int) -> None:
        super().__init__(step + 1, slots, alpha, floor)


@pytest.mark.parametrize("mutant", [PublishesTheKnownTotal, ForgetsWhatJoinersHide, StepTooLarge])
def test_exploration_catches_mutants(mutant: type[BelowFloor], monkeypatch: pytest.MonkeyPatch) -> None:
    def open_mutant(context: RoundContext, floor: int) -> RoundSetup | None:
        setup = open_below_floor(context, floor)
        if setup is None:
            return None
        trigger = setup.estimator.trigger(0)
        return RoundSetup(setup.scheme, mutant(trigger.step, context.slots, context.alpha, floor), setup.slots)  # type: ignore[union-attr]

    monkeypatch.setattr(rounds, "open_below_floor", open_mutant)
    with pytest.raises(AssertionError):
        explore(Case(0.25, 8, expected=2, sites=2, leaves=0, restarts=0))


def test_trigger_for_a_total_as_large_as_the_floor_hides_too_much() -> None:
    """A plan that uses the growth of the total within a round is wrong below the floor, where nothing grows.

    One site, alpha = 1/4, floor 8: as if it had counted 8 before, it may count 5 events without a report. No answer is
    within alpha * floor = 2 of both 0 and 5.
    """
    hidden = GeometricGrowth(0.25).max_count_covered(8) - 8
    assert hidden == 5
    assert not any(
        within(estimate / 100, 0.25, 0, 8) and within(estimate / 100, 0.25, hidden, 8) for estimate in range(900)
    )


def test_restart_below_the_floor_requests_one_snapshot_of_each_site() -> None:
    """The published estimate says little of a small total: published - alpha * floor, not published / (1 + alpha).

    With the second, the coordinator would plan for a total that does not exist, and start two rounds.
    """
    world = HeldWorld(Deterministic(), (), alpha=0.25, floor=80, expected_sites=4)
    for number in range(4):
        world.join(SiteId(number))
    world.deliver_all()
    assert (world.total, world.coordinator.published) == (0, 20)
    world.restart()
    assert requested(world.wire) == [0, 1, 2, 3]  # type: ignore[arg-type]
    world.deliver_all()
    assert (world.coordinator.round, world.coordinator.answer.contains(0)) == (1, True)


step = st.tuples(
    st.sampled_from(["add"] * 8 + ["join", "leave", "time out", "reconnect", "restart"]),
    st.integers(0, 9),
    st.integers(0, 60),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.sampled_from(["deterministic", "sampled", "dithered", "auto"]),
    st.sampled_from([0.05, 0.1, 0.3]),
    st.integers(0, 2000),
    st.integers(1, 6),
    st.lists(step, max_size=120),
)
def test_joins_departures_time_outs_and_restarts_keep_the_bound(
    scheme: str, alpha: float, floor: int, expected: int, steps: list[tuple[str, int, int]]
) -> None:
    """`delta` is 1e-9 for each run, so a failure is a bug."""
    world = HeldWorld(
        scheme_named(scheme, "adaptive"), (), alpha=alpha, delta=1e-9, floor=floor, expected_sites=expected
    )
    joined = 0
    for kind, number, n in [("join", 0, 0), *steps]:
        sites = list(world.sites)
        site_id = sites[number % len(sites)] if sites else None
        if site_id is None or (kind == "join" and len(sites) < 9):
            joined += 1
            world.join(SiteId(joined), count=n)
        elif kind == "leave":
            world.leave(site_id)
        elif kind == "time out":
            world.time_out(site_id)
        elif kind == "restart":
            world.restart()
        elif kind == "reconnect":
            world.reconnect(site_id)
        else:
            world.add(site_id, n)
        world.deliver_all()
        answer = world.coordinator.answer
        assert answer.lower <= world.total
        if answer.state is not State.DEGRADED:
            assert within(answer.estimate, alpha, world.total, floor), answer


@pytest.mark.slow
@given(st.integers(1, 6), st.sampled_from([0.05, 0.1, 0.3]), st.integers(1, 500), st.data())
def test_reports_below_the_floor_are_few_for_any_traffic(
    sites: int, alpha: float, floor: int, data: st.DataObject
) -> None:
    world = HeldWorld(Deterministic(), (), alpha=alpha, floor=floor, expected_sites=sites)
    for number in range(sites):
        world.join(SiteId(number))
    world.deliver_all()
    reports, certain = 0, world.coordinator.answer.scheme == NAME
    while certain and world.coordinator.round == 0:
        world.add(SiteId(data.draw(st.integers(0, sites - 1))), data.draw(st.integers(1, 1 + floor // 10)))
        reports += len(world.wire)
        world.deliver_all()
    assert reports <= sites / (2 * alpha) + sites / 2 + 1
