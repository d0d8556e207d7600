"""A coordinator that continues from an older copy of its state, started with `--after-restore`."""

import logging
from copy import deepcopy
from typing import Any

import pytest

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask, BudgetId, Grant, Recall
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import BudgetState
from countless.core.calendar import Calendar
from countless.server.kinds.budgets import Budgets
from countless.server.storage import commit
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import BudgetLeave, BudgetLeaveAck, DownItem, SetBudgetRule, UpItem
from support.budget_world import Broken
from support.period_world import RESTORE_WAIT_S, World, running
from support.session_world import SILENT_AFTER_S, START_S
from support.site_server import FakeConnection, SiteServerHarness, site_server

TOKENS = BudgetId("tokens")
RESTORED: dict[str, Any] = {"after_restore": True}  # budgets wait for 180 s


def ask(seq: int, want: int = 0, *, spent: int = 0, limit: int = 0, round: int = 0, period: int = 0) -> Ask:
    return Ask(BudgetId("tokens", period), round, seq, spent, 0, limit, want)


class Site:
    def __init__(self, harness: SiteServerHarness, name: str, incarnation: int = 1) -> None:
        self.harness, self.name, self.incarnation = harness, name, incarnation
        self.connection = FakeConnection()

    async def send(self, *items: UpItem) -> list[DownItem]:
        """On a connection of its own, if it has none."""
        if not hasattr(self, "session"):
            self.session, self.connection = await self.harness.connect(self.name, self.incarnation)
            await self.harness.server.flush()
        await self.harness.send(self.session, self.connection, *items)
        return self.received

    @property
    def received(self) -> list[DownItem]:
        return [item for item in self.connection.received if not isinstance(item, SetBudgetRule)]

    def disconnect(self) -> None:
        self.harness.server.on_disconnect(self.session, self.connection)


async def copy_with(limit: int, *sites: str, per: str | None = None) -> MemoryStore:
    """The state in which each of these sites was granted a share of ten units."""
    async with site_server() as harness:
        harness.server.budgets.create("tokens", BudgetRule(limit, per, slack=0))
        for name in sites:
            await Site(harness, name).send(ask(1, 10))
        await harness.server.flush()
        assert isinstance(harness.store, MemoryStore)
        return deepcopy_of(harness.store)


def deepcopy_of(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    copy.__dict__ |= {name: deepcopy(value) for name, value in store.__dict__.items() if name != "_lock"}
    return copy


def state(harness: SiteServerHarness) -> tuple[BudgetState, int]:
    usage = harness.server.budgets.get("tokens").usage
    return usage.state, usage.upper


async def test_site_that_was_granted_more_since_the_copy_is_believed_and_its_round_is_passed() -> None:
    async with site_server(await copy_with(100, "web"), **RESTORED) as harness:
        web, other = Site(harness, "web"), Site(harness, "other")
        await harness.advance(140)
        assert await web.send(ask(9, 5, spent=88, limit=90, round=7)) == []
        assert await other.send(ask(1, 5)) == []
        assert state(harness) == (BudgetState.RESTORING, 90)
        await harness.advance(41)
        assert web.received == [Recall(TOKENS, 8)]
        assert await web.send(ask(10, 5, spent=88, limit=88, round=8)) == []  # until the other one has answered
        assert await other.send(ask(2, 5, round=8)) == [Grant(TOKENS, 8, 5)]
        assert web.received == [Grant(TOKENS, 8, 93)]
        assert state(harness) == (BudgetState.OPEN, 98)


async def test_incarnation_that_the_copy_does_not_know_is_believed() -> None:
    async with site_server(await copy_with(100), **RESTORED) as harness:
        web, other = Site(harness, "web"), Site(harness, "other")
        assert await web.send(ask(4, spent=95, limit=97, round=2)) == []
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 97)
        await web.send(ask(5, spent=96, limit=96, round=3))
        assert await other.send(ask(1, 4)) == [Grant(TOKENS, 3, 4)]


async def test_what_is_handed_in_by_an_incarnation_that_the_copy_does_not_know_is_charged() -> None:
    leave = BudgetLeave(TOKENS, 7, 96)
    async with site_server(await copy_with(100), **RESTORED) as harness:
        assert await Site(harness, "web", 8).send(leave) == [BudgetLeaveAck(TOKENS, 7)]
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 96)
    async with site_server(await copy_with(100, "web"), **RESTORED) as harness:
        await Site(harness, "web", 8).send(leave._replace(incarnation=1))  # more than it was granted by the copy
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 96)


async def test_what_is_handed_in_again_before_it_is_acknowledged_is_charged_once() -> None:
    leave = BudgetLeave(TOKENS, 7, 30)
    async with site_server(await copy_with(100), **RESTORED) as harness:
        assert await Site(harness, "web", 8).send(leave, leave) == 2 * [BudgetLeaveAck(TOKENS, 7)]
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 30)


async def test_period_that_the_copy_has_not_opened_is_restored_too() -> None:
    store, hour = await copy_with(100, per="hour"), Calendar("hour").period_at(START_S)
    async with site_server(store, wall_clock=lambda: START_S, **RESTORED) as harness:
        web, other = Site(harness, "web"), Site(harness, "other")
        assert state(harness)[0] is BudgetState.RESTORING  # also before a site asks for the period
        assert await web.send(ask(3, spent=95, limit=97, round=2, period=hour)) == []
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 97)
        await web.send(ask(4, spent=97, limit=97, round=3, period=hour))
        assert await other.send(ask(1, 1, period=hour)) == [Grant(BudgetId("tokens", hour), 3, 1)]
        assert await other.send(ask(1, 1, period=hour + 1)) == [Grant(BudgetId("tokens", hour + 1), 0, 14)]  # new


async def test_limit_raised_since_the_copy_was_made_grants_nothing_until_it_is_raised_again() -> None:
    async with site_server(await copy_with(100, "web"), **RESTORED) as harness:
        web = Site(harness, "web")
        await harness.advance(140)
        await web.send(ask(4, spent=150, limit=180, round=2))
        await harness.advance(41)
        assert state(harness) == (BudgetState.LOWERING, 180)
        await web.send(ask(5, 10, spent=150, limit=150, round=3))
        assert state(harness) == (BudgetState.LOWERING, 150)
        harness.server.budgets.configure("tokens", {"limit": 200})
        await harness.server.flush()
        assert Recall(TOKENS, 4) in web.received
        assert await web.send(ask(6, 10, spent=150, limit=150, round=4)) == [Grant(TOKENS, 4, 164)]


async def test_limit_changed_and_budget_reset_while_sites_are_awaited() -> None:
    async with site_server(await copy_with(100, "web"), **RESTORED) as harness:
        budgets, web = harness.server.budgets, Site(harness, "web")
        budgets.configure("tokens", {"limit": 20})
        budgets.reset("tokens")
        await harness.advance(140)
        assert await web.send(ask(4, spent=30, limit=30, round=2)) == []
        await harness.advance(41)
        assert web.received == [Recall(TOKENS, 3)]
        await web.send(ask(5, spent=30, limit=30, round=3))
        assert (budgets.get("tokens").usage.state, budgets.get("tokens").usage.upper) == (BudgetState.OPEN, 0)


async def test_budgets_wait_for_a_site_of_the_copy_until_an_operator_drops_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "countless.budgets"):
        async with site_server(await copy_with(100, "web", "other"), **RESTORED, forget_after=300.0) as harness:
            await Site(harness, "other").send(ask(2, limit=10))
            await Site(harness, "web", 2).send(ask(1, 5))  # its next incarnation does not retire the one of the copy
            for _ in range(20):
                await harness.advance(30)
            assert state(harness)[0] is BudgetState.RESTORING
            assert "restore waits for sites: missing=1 sites='web of tokens'" in caplog.text
            assert "restore complete, budgets grant again" not in caplog.text
            assert harness.server.drop_site("web") == 1
            await harness.advance(1)
            assert state(harness)[0] is not BudgetState.RESTORING
            assert "restore complete, budgets grant again" in caplog.text
            assert harness.server.budgets.get("tokens").usage.leaked == 28 + 14  # the other one was silent for too long


async def test_rolling_budget_waits_no_longer_than_its_units_count() -> None:
    async with site_server() as before:
        before.server.budgets.create("tokens", BudgetRule(100, slack=0, rolling=120.0))
        await Site(before, "web").send(ask(1, 10))
        assert isinstance(before.store, MemoryStore)
        copy = deepcopy_of(before.store)
    async with site_server(copy, **RESTORED) as harness:
        await harness.advance(239)
        assert state(harness)[0] is BudgetState.RESTORING
        await harness.advance(2)
        assert state(harness)[0] is not BudgetState.RESTORING


async def test_without_budgets_the_restore_is_over_after_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "countless.budgets"):
        async with site_server(**RESTORED) as harness:
            await harness.advance(179)
            assert "restore complete, budgets grant again" not in caplog.text
            await harness.advance(2)
            assert caplog.text.count("restore complete, budgets grant again") == 1


# Random runs of production clients. The copy is made at a random step, and restored at a later one.


async def play(seed: int, after_restore: bool = True) -> str | None:
    weights = {"kill": 0, "kill coordinator": 0, "site's clock": 0, "coordinator's clock": 0, "all clocks": 0}
    async with running(World(3, seed, weights | {"time": 15})) as world:
        try:
            for _ in range(world.rng.randrange(150)):
                await world.step()
            copy = deepcopy_of(world.store)
            for _ in range(world.rng.randrange(200)):
                await world.step()
            await world.kill_server()
            world.store = copy
            world.start_server(after_restore=after_restore)
            for _ in range(world.rng.randrange(40)):  # less than the wait, nearly always
                world.weights["time"] = 0
                await world.step()
            await world.deliver_all()  # every site has connected
            world.weights["time"] = 15
            await world.pass_time(RESTORE_WAIT_S)
            for _ in range(200):
                await world.step()
            await world.pass_time(5 * SILENT_AFTER_S)
            await world.spend_the_rest()
        except Broken as broken:
            return f"seed {seed}: {broken}"
    return None


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "COMMIT_INTERVAL_S", 0.0)


@pytest.mark.slow
async def test_random_runs_stay_within_the_limit(at_once: None) -> None:
    for seed in range(15):
        broken = await play(seed)
        assert broken is None, broken


@pytest.mark.slow
@pytest.mark.soak
async def test_many_random_runs_stay_within_the_limit(at_once: None) -> None:
    for seed in range(15, 500):
        broken = await play(seed)
        assert broken is None, broken


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["no flag", "keeps the round", "resets unknown sites"])
async def test_random_runs_find_mistakes(mutant: str, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant == "keeps the round":
        believe = BudgetCoordinator._believe
        monkeypatch.setattr(
            BudgetCoordinator,
            "_believe",
            lambda self, who, holder, ask: believe(self, who, holder, ask._replace(round=0)),
        )
    elif mutant == "resets unknown sites":
        monkeypatch.setattr(Budgets, "_open", lambda self, budget, period: budget.period(period))
    for seed in range(60):
        if await play(seed, after_restore=mutant != "no flag"):
            return
    raise AssertionError("no run found it")
