"""A budget decides as one global counter would, and random runs on a faulty network keep every promise.

The reference is a plain counter that sees every request. With slack 0 and messages that arrive at once, every decision
of the protocol must be the reference's.
"""

from collections import Counter
from contextlib import suppress
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import countless
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.hold import Hold
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.errors import LimitExceeded
from countless.inprocess.accounts import Request, SiteAccount
from countless.inprocess.world import Meter, World
from support import budget_world
from support.budget_world import BUDGET, Case, walk


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


class Instant(World[BudgetCoordinator, SiteAccount]):
    """Production sites and coordinator; a message arrives before the next step."""

    def __init__(self, limit: int, slack: float, early_percent: int = 10) -> None:
        super().__init__(BudgetCoordinator(BUDGET, limit, slack=slack), {}, Meter(self._count))
        self.early_percent = early_percent
        self.left: set[SiteId] = set()
        self.messages: Counter[SiteId] = Counter()
        self.allowed: Counter[SiteId] = Counter()  # messages that Theorem 11 allows so far
        self.most: Counter[SiteId] = Counter()  # how far a site was above that, in any interval
        self._least: Counter[SiteId] = Counter()

    def _count(self, site_id: SiteId, message: object) -> None:
        self.messages[site_id] += 1
        above = self.messages[site_id] - self.allowed[site_id]
        assert above <= 0, f"{above} messages of {site_id} more than Theorem 11 allows: {message}"

    def note(self) -> None:
        """No message is on its way: an interval may begin or end."""
        for site_id in self.sites:
            above = self.messages[site_id] - self.allowed[site_id]
            self._least[site_id] = min(self._least[site_id], above)
            self.most[site_id] = max(self.most[site_id], above - self._least[site_id])

    def account(self, number: int) -> tuple[SiteId, SiteAccount]:
        incarnation = 0
        while SiteId(number, incarnation) in self.left:
            incarnation += 1
        site_id = SiteId(number, incarnation)
        if site_id not in self.sites:
            self.sites[site_id] = SiteAccount(BudgetSite(BUDGET, early_percent=self.early_percent))
        return site_id, self.sites[site_id]

    def request(self, number: int, n: int, hold: bool) -> bool:
        site_id, account = self.account(number)
        request: Request = BudgetSite.reserve if hold else BudgetSite.take
        self.allowed[site_id] += 4
        self.send(site_id, account.request(request, n))
        return account.allowed

    def settle(self, number: int, units: int, used: int) -> None:
        site_id, account = self.account(number)
        self.allowed[site_id] += 1
        self.send(site_id, account.settle(units, used))

    def leave(self, number: int) -> None:
        site_id, account = self.account(number)
        self.left.add(site_id)
        self.deliver(self.coordinator.leave(site_id, account.site.close()))

    def reset(self) -> None:
        for site_id, holder in self.coordinator._holders.items():
            self.allowed[site_id] += 0 if holder.lent else 2
        self.deliver(self.coordinator.reset())

    def end(self, number: int) -> int:
        """The site ends without handing in. Returns what is lost with it."""
        site_id, account = self.account(number)
        self.left.add(site_id)
        self.deliver(self.coordinator.give_up(site_id))
        return account.site.room

    def restart(self) -> None:
        saved, slack = self.coordinator.saved_state, self.coordinator.slack
        self.coordinator = BudgetCoordinator(BUDGET, 1, slack=slack, saved_state=saved)
        self.deliver(self.coordinator.recover())
        for site_id, account in self.sites.items():
            if account.site.seq and site_id not in self.left:
                self.allowed[site_id] += 2
                self._count(site_id, "join")
                self.deliver(self.coordinator.join(site_id, account.site.resend()))


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
            lost = budget.coordinator.usage.leaked
            held = sum(sum(units) for units in holds.values())
            budget.reset()
            reference.used = held + lost
        usage = budget.coordinator.usage
        assert usage.lower <= max(reference.used, 0)


@given(st.integers(1, 100), steps)
def test_exact_budget_decides_as_one_global_counter(limit: int, actions: list[tuple[str, int, int]]) -> None:
    play(limit, 0, actions)


@given(st.integers(1, 100), st.sampled_from([0.01, 0.1, 0.5]), steps)
def test_budget_with_slack_keeps_both_promises(limit: int, slack: float, actions: list[tuple[str, int, int]]) -> None:
    play(limit, slack, actions)


# Messages, as Theorem 11 counts them


def play_instantly(seed: int) -> int:
    """Random traffic. How far a site was above Theorem 11 in an interval."""
    rng = Random(seed)  # noqa: S311
    sites, limit = rng.randint(2, 6), rng.choice((5, 30, 300))
    budget = Instant(limit, rng.choice((0, 0.01, 0.1)), rng.choice((0, 10, 50)))
    weights = rng.choice(((1,), (1, 2, 9), (1, 1, limit)))
    hold_share, settle_share = rng.random(), rng.choice((0.2, 0.5))
    holds: list[tuple[int, int]] = []
    for _ in range(200):
        if holds and rng.random() < settle_share:
            number, units = holds.pop(rng.randrange(len(holds)))
            budget.settle(number, units, rng.choice((0, 0, 0, units)))
        else:
            number, n, hold = rng.randrange(sites), rng.choice(weights), rng.random() < hold_share
            if budget.request(number, n, hold) and hold:
                holds.append((number, n))
        budget.note()
    return max(budget.most.values())


def test_a_site_has_four_messages_for_a_request_and_one_for_a_settlement_and_two_more_in_an_interval() -> None:
    assert max(play_instantly(seed) for seed in range(150)) == 2


@pytest.mark.soak
def test_messages_of_many_games_stay_below_the_bound_for_each_site() -> None:
    assert max(play_instantly(seed) for seed in range(150, 20_000)) == 2


def play_rolling(seed: int) -> int:
    rng, clock = Random(seed), SimpleNamespace(seconds=0.0)  # noqa: S311
    sites, limit, window = rng.randint(2, 5), rng.choice((5, 30, 100)), 20.0
    budget = countless.Budget(limit, sites, rng.choice((0, 0.1)), rolling=window, clock=lambda: float(clock.seconds))
    messages, allowed, least, most = Counter[SiteId](), Counter[SiteId](), Counter[SiteId](), 0
    budget._accounts.meter.taps.append(lambda site_id, message: messages.update([site_id]))
    load, hold_share = rng.choice((0.3, 1.0, 4.0)), rng.choice((0.0, 0.3))
    holds: list[tuple[int, Hold]] = []
    for _ in range(400):
        clock.seconds += rng.expovariate(load * limit / window)
        number, n = rng.randrange(sites), rng.choice((1, 1, 1, min(limit, 7)))
        if holds and rng.random() < 0.3:
            number, hold = holds.pop(0)
            allowed[SiteId(number)] += 1
            hold.settle(rng.randint(0, hold.units))
        elif rng.random() < hold_share:
            allowed[SiteId(number)] += 4
            with suppress(LimitExceeded):
                holds.append((number, budget.site(number).reserve(n)))
        else:
            allowed[SiteId(number)] += 4
            budget.site(number).take(n)
        for site_id in allowed:
            above = messages[site_id] - allowed[site_id]
            assert above <= 0, f"seed {seed}: {above} messages more than Theorem 11 allows"
            least[site_id] = min(least[site_id], above)
            most = max(most, above - least[site_id])
    return most


def test_rolling_budgets_have_the_same_bound() -> None:
    assert max(play_rolling(seed) for seed in range(40)) <= 2


@pytest.mark.soak
def test_rolling_budgets_have_the_same_bound_in_many_games() -> None:
    assert max(play_rolling(seed) for seed in range(40, 4000)) <= 2


# A faulty network

FAULTY = {
    "messages": Case(sites=4, limit=60, requests=80, weights=(1, 2, 9), losses=9, repeats=9, overtakes=9, reconnects=5),
    "holds": Case(sites=4, limit=40, requests=80, weights=(1, 5), holds=40, losses=5, repeats=5, overtakes=5),
    "queues": Case(sites=3, limit=40, requests=90, weights=(1, 2, 9), queue=3, withdrawals=9, holds=60, overtakes=9),
    "queued": Case(
        sites=5,
        limit=6,
        requests=90,
        weights=(1, 2, 5),
        queue=2,
        withdrawals=9,
        holds=20,
        acquires=60,
        overtakes=9,
        kills=2,
    ),
    "restarts": Case(sites=3, limit=40, requests=60, weights=(1, 4), holds=20, kills=5, losses=5, timeouts=5),
    "members": Case(
        sites=6, limit=60, requests=80, weights=(1, 3), holds=30, leaves=3, ends=2, kills=2, repeats=9, overtakes=9
    ),
    "limits": Case(
        sites=3, limit=40, requests=80, weights=(1, 4), holds=20, limits=(20, 60, 10, 70), losses=3, kills=2
    ),
    "resets": Case(sites=4, limit=40, requests=99, weights=(1, 4, 9), holds=40, resets=4, queue=2),
    "resets, disturbed": Case(
        sites=4, limit=40, requests=99, weights=(1, 4, 9), holds=40, resets=4, queue=2, kills=2, timeouts=3, leaves=1
    ),
    "deleted": Case(
        sites=4, limit=40, requests=80, weights=(1, 4), holds=30, deletions=2, kills=2, reconnects=2, queue=2
    ),
    "early asks": Case(
        sites=3, limit=900, requests=99, weights=(1, 9), early_percent=50, losses=5, overtakes=5, kills=2
    ),
    "slack": Case(sites=5, limit=500, slack=0.05, requests=150, weights=(1, 7, 30), losses=9, overtakes=9, kills=3),
}


@pytest.mark.parametrize("name", FAULTY)
def test_random_runs_on_a_faulty_network_keep_every_promise(name: str) -> None:
    for seed in range(20):
        walk(budget_world.World(FAULTY[name]), seed)


@pytest.mark.soak
@pytest.mark.parametrize("name", FAULTY)
def test_many_random_runs_on_a_faulty_network_keep_every_promise(name: str) -> None:
    for seed in range(20, 3000):
        walk(budget_world.World(FAULTY[name]), seed)
