"""A budget decides as one global counter would, and random runs on a faulty network keep every promise.

The reference is a plain counter that sees every request. With slack 0 and messages that arrive at once, every decision
of the protocol must be the reference's.
"""

from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Outbox
from countless.core.budget.site import BudgetSite, Taken, Verdict
from countless.core.messages import SiteId
from support.budget_world import BUDGET, Case, World


class GlobalCounter:
    """The reference."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def left(self) -> int:
        return self.limit - self.used

    def request(self, n: int) -> bool:
        if n > self.left:
            return False
        self.used += n
        return True


class Instant:
    """Production sites and coordinator; a message arrives before the next step."""

    def __init__(self, limit: int, slack: float) -> None:
        self.slack = slack
        self.coordinator = BudgetCoordinator(BUDGET, limit, slack=slack)
        self.sites: dict[SiteId, BudgetSite] = {}
        self.left: set[SiteId] = set()

    def site(self, number: int) -> tuple[SiteId, BudgetSite]:
        incarnation = 0
        while SiteId(number, incarnation) in self.left:
            incarnation += 1
        site_id = SiteId(number, incarnation)
        return site_id, self.sites.setdefault(site_id, BudgetSite(BUDGET))

    def deliver(self, outbox: Outbox) -> None:
        queue = deque(outbox)
        while queue:
            site_id, message = queue.popleft()
            for ask in self.sites[site_id].receive(message):
                queue.extend(self.coordinator.receive(site_id, ask))

    def request(self, number: int, n: int, hold: bool) -> bool:
        site_id, site = self.site(number)
        for _ in range(2):
            taken: Taken = site.reserve(n) if hold else site.take(n)
            for ask in taken.messages:
                self.deliver(self.coordinator.receive(site_id, ask))
            if taken.verdict is not Verdict.WAITING:
                return taken.verdict is Verdict.ALLOWED
        raise AssertionError(f"no answer to a request for {n}: {site}")

    def settle(self, number: int, units: int, used: int) -> None:
        site_id, site = self.site(number)
        for ask in site.settle(units, used):
            self.deliver(self.coordinator.receive(site_id, ask))

    def leave(self, number: int) -> None:
        site_id, site = self.site(number)
        self.left.add(site_id)
        self.deliver(self.coordinator.leave(site_id, site.close()))

    def end(self, number: int) -> int:
        """The site ends without handing in. Returns what is lost with it."""
        site_id, site = self.site(number)
        lost = site.room
        self.left.add(site_id)
        self.deliver(self.coordinator.give_up(site_id))
        return lost

    def restart(self) -> None:
        saved = self.coordinator.saved_state
        self.coordinator = BudgetCoordinator(BUDGET, 1, slack=self.slack, saved_state=saved)
        self.deliver(self.coordinator.recover())


numbers = st.integers(0, 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["take", "take", "take", "reserve"]), numbers, st.integers(1, 40)),
        st.tuples(st.just("take"), numbers, st.just(1)),
        st.tuples(st.just("settle"), numbers, st.integers(0, 40)),
        st.tuples(st.sampled_from(["leave", "end", "restart", "reset"]), numbers, st.just(0)),
        st.tuples(st.just("set limit"), numbers, st.integers(1, 120)),
    ),
    max_size=60,
)


def play(limit: int, slack: float, actions: list[tuple[str, int, int]]) -> None:
    """Compare every decision. With a slack, compare what the two promises say."""
    budget, reference = Instant(limit, slack), GlobalCounter(limit)
    holds: dict[int, list[int]] = {number: [] for number in range(4)}
    for name, number, amount in actions:
        if name in ("take", "reserve"):
            left = reference.left
            admitted = budget.request(number, amount, name == "reserve")
            if slack == 0:
                assert admitted == (amount <= left), f"{amount} of {left} left: {budget.coordinator}"
            assert not admitted or reference.request(amount)
            assert admitted or left <= max(slack * reference.limit, amount - 1)
            if admitted and name == "reserve":
                holds[number].append(amount)
        elif name == "settle" and holds[number]:
            units = holds[number].pop()
            used = min(amount, units)
            budget.settle(number, units, used)
            reference.used -= units - used
        elif name == "leave":
            budget.leave(number)
            holds[number] = []
        elif name == "end":
            reference.used += budget.end(number)
            holds[number] = []
        elif name == "restart":
            budget.restart()
        elif name == "set limit":
            reference.limit = amount
            budget.deliver(budget.coordinator.set_limit(amount))
        elif name == "reset":
            budget.restart()  # every site reports, so that the reset forgets all
            lost = budget.coordinator.usage.leaked
            held = sum(sum(units) for units in holds.values())
            budget.deliver(budget.coordinator.reset())
            reference.used = held + lost
        usage = budget.coordinator.usage
        assert usage.lower <= max(reference.used, 0)


@given(st.integers(1, 100), steps)
def test_exact_budget_decides_as_one_global_counter(limit: int, actions: list[tuple[str, int, int]]) -> None:
    play(limit, 0, actions)


@given(st.integers(1, 100), st.sampled_from([0.01, 0.1, 0.5]), steps)
def test_budget_with_slack_keeps_both_promises(limit: int, slack: float, actions: list[tuple[str, int, int]]) -> None:
    play(limit, slack, actions)


FAULTY = {
    "messages": Case(sites=4, limit=60, requests=80, weights=(1, 2, 9), losses=9, repeats=9, overtakes=9, reconnects=5),
    "holds": Case(sites=4, limit=40, requests=80, weights=(1, 5), holds=40, losses=5, repeats=5, overtakes=5),
    "restarts": Case(sites=3, limit=40, requests=60, weights=(1, 4), holds=20, kills=5, losses=5, timeouts=5),
    "members": Case(sites=6, limit=60, requests=80, weights=(1, 3), holds=30, leaves=3, ends=2, kills=2, repeats=9),
    "limits": Case(
        sites=3, limit=40, requests=80, weights=(1, 4), holds=20, limits=(20, 60, 10, 70), losses=3, kills=2
    ),
    "early asks": Case(
        sites=3, limit=900, requests=99, weights=(1, 9), early_percent=50, losses=5, overtakes=5, kills=2
    ),
    "slack": Case(sites=5, limit=500, slack=0.05, requests=150, weights=(1, 7, 30), losses=9, overtakes=9, kills=3),
}


def walk(case: Case, seed: int) -> None:
    """One random run, and the checks at its end. Messages are delivered more often than requests are made."""
    rng = Random(seed)  # noqa: S311
    world = World(case)
    for _ in range(400):
        actions = list(world.actions())
        if not actions:
            break
        deliveries = [action for action in actions if action[0] in ("up", "down") and action[2] == 0]
        requests = [action for action in actions if action[0] in ("take", "reserve", "settle")]
        kinds = [kind for kind in (deliveries, deliveries, deliveries, requests, requests, actions) if kind]
        world.do(rng.choice(rng.choice(kinds)))
    for _ in range(10_000):
        deliveries = [action for action in world.actions() if action[0] in ("up", "down") and action[2] == 0]
        if not deliveries:
            break
        world.do(rng.choice(deliveries))
    assert world.quiet
    world.check_when_quiet()


@pytest.mark.parametrize("name", FAULTY)
def test_random_runs_on_a_faulty_network_keep_every_promise(name: str) -> None:
    for seed in range(40):
        walk(FAULTY[name], seed)


@pytest.mark.soak
@pytest.mark.parametrize("name", FAULTY)
def test_many_random_runs_on_a_faulty_network_keep_every_promise(name: str) -> None:
    for seed in range(40, 3000):
        walk(FAULTY[name], seed)
