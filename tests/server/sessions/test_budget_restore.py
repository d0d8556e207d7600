"""A coordinator that continues from an older copy of its state, started with `--after-restore`."""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import pytest

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.budget.state import BudgetState
from countless.core.calendar import Calendar
from countless.server.kinds.budgets import Budgets
from countless.server.storage.memory_store import MemoryStore
from countless.wire.budgets import BudgetLeave, BudgetLeaveAck
from support.site_server import SiteServerHarness, site_server
from support.spender import TOKENS, Spender

START_S = 30_000_000 * 60.0
RESTORED: dict[str, Any] = {"after_restore": True}  # budgets wait for 180 s
HOUR = Calendar("hour").period_at(START_S)
Takes = Mapping[str, Sequence[int]]  # by site


class Before:
    """A coordinator of which a copy was made, and what its sites have taken since."""

    def __init__(self, rule: BudgetRule, period: int = 0) -> None:
        self.rule, self.budget = rule, BudgetId("tokens", period)
        self.sites: dict[str, Spender] = {}

    async def run(
        self, before: Takes, after: Takes, change: Callable[[SiteServerHarness], object] = lambda harness: None
    ) -> MemoryStore:
        """The copy. `change`: what an operator did when it had been made."""
        async with site_server(wall_clock=lambda: START_S) as harness:
            harness.server.budgets.create("tokens", self.rule)
            await self._take(harness, before)
            assert isinstance(harness.store, MemoryStore)
            copy = deepcopy_of(harness.store)
            change(harness)
            await self._take(harness, after)
        return copy

    async def _take(self, harness: SiteServerHarness, takes: Takes) -> None:
        for name, amounts in takes.items():
            if name not in self.sites:
                self.sites[name] = await Spender(harness, name, rolling=self.rule.rolling).connect()
            for amount in amounts:
                assert await self.sites[name].take(amount, self.budget) == "allowed"
        await harness.server.flush()

    async def connect(self, harness: SiteServerHarness, name: str) -> Spender:
        """To the coordinator that continues from the copy."""
        self.sites[name].harness = harness
        return await self.sites[name].connect()


def before(limit: int = 100) -> Before:
    return Before(BudgetRule(limit, slack=0))


def deepcopy_of(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    copy.__dict__ |= {name: deepcopy(value) for name, value in store.__dict__.items() if name != "_lock"}
    return copy


def state(harness: SiteServerHarness) -> tuple[BudgetState, int]:
    usage = harness.server.budgets.get("tokens").usage
    return usage.state, usage.upper


async def test_site_that_was_granted_more_since_the_copy_is_believed() -> None:
    copy = await (old := before()).run({"web": [1]}, {"web": [60, 27]})
    async with site_server(copy, **RESTORED) as harness:
        await harness.advance(140)
        await old.connect(harness, "web")
        other = await Spender(harness, "other").connect()
        assert await other.take(5) == "waiting"
        assert state(harness) == (BudgetState.RESTORING, 89)
        await harness.advance(41)
        assert await other.exchange() == ["allowed"]
        assert state(harness) == (BudgetState.OPEN, 94)
        assert await other.take(8) == "exhausted"


async def test_incarnation_that_the_copy_does_not_know_is_believed() -> None:
    copy = await (old := before()).run({}, {"web": [97]})
    async with site_server(copy, **RESTORED) as harness:
        await old.connect(harness, "web")
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 97)
        other = await Spender(harness, "other").connect()
        assert [await other.take(4), await other.take(3)] == ["exhausted", "allowed"]


def keeps_its_own_totals(patch: pytest.MonkeyPatch) -> None:
    note = BudgetCoordinator._note
    patch.setattr(
        BudgetCoordinator,
        "_note",
        lambda self, who, holder, ask: note(
            self, who, holder, ask._replace(granted=holder.granted, returned=holder.returned)
        ),
    )


def resets_unknown_sites(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Budgets, "_open", lambda self, budget, period: budget.period(period))


@pytest.mark.parametrize("mistake", [keeps_its_own_totals, resets_unknown_sites])
async def test_incarnation_that_is_not_believed_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        await test_incarnation_that_the_copy_does_not_know_is_believed()


async def test_site_that_left_since_the_copy_and_came_back_is_believed_and_what_the_copy_knows_stays_charged() -> None:
    copy = await (old := before()).run({"web": [30]}, {})
    web = old.sites["web"]
    async with site_server(copy, **RESTORED) as harness:
        await harness.advance(140)
        web.harness, web.sites[TOKENS] = harness, BudgetSite(TOKENS, seq=5, since=5)
        web.of().overdraw(20)  # as it was granted by the coordinator that is lost
        web.of().take(20)
        await web.connect()
        assert state(harness) == (BudgetState.RESTORING, 50)
        await harness.advance(41)
        assert [await web.take(51), await web.take(50)] == ["exhausted", "allowed"]


async def test_what_is_handed_in_by_an_incarnation_that_the_copy_does_not_know_is_charged() -> None:
    leave = BudgetLeave(TOKENS, 7, 96)
    async with site_server(await before().run({}, {}), **RESTORED) as harness:
        assert await (await Spender(harness, "web", 8).connect()).send(leave) == [BudgetLeaveAck(TOKENS, 7)]
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 96)
    async with site_server(await before().run({"web": [10]}, {}), **RESTORED) as harness:
        web = await Spender(harness, "web", 8).connect()
        await web.send(leave._replace(incarnation=1))  # more than it was granted by the copy
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 96)


async def test_what_is_handed_in_again_before_it_is_acknowledged_is_charged_once() -> None:
    leave = BudgetLeave(TOKENS, 7, 30)
    async with site_server(await before().run({}, {}), **RESTORED) as harness:
        web = await Spender(harness, "web", 8).connect()
        assert await web.send(leave, leave) == 2 * [BudgetLeaveAck(TOKENS, 7)]
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 30)


async def test_period_that_the_copy_has_not_opened_is_restored_too() -> None:
    copy = await (old := Before(BudgetRule(100, "hour", slack=0), HOUR)).run({}, {"web": [97]})
    async with site_server(copy, wall_clock=lambda: START_S, **RESTORED) as harness:
        assert state(harness)[0] is BudgetState.RESTORING  # also before a site asks for the period
        await old.connect(harness, "web")
        await harness.advance(181)
        assert state(harness) == (BudgetState.OPEN, 97)
        other = await Spender(harness, "other").connect()
        assert [await other.take(4, old.budget), await other.take(3, old.budget)] == ["exhausted", "allowed"]
        assert await other.take(100, BudgetId("tokens", HOUR + 1)) == "allowed"  # new


async def test_limit_raised_since_the_copy_was_made_grants_nothing_until_it_is_raised_again() -> None:
    def raise_limit(harness: SiteServerHarness) -> None:
        harness.server.budgets.configure("tokens", {"limit": 200})

    copy = await (old := before()).run({"web": [1]}, {"web": [149]}, raise_limit)
    async with site_server(copy, **RESTORED) as harness:
        await harness.advance(140)
        web = await old.connect(harness, "web")
        await harness.advance(41)
        assert state(harness) == (BudgetState.LOWERING, 150)
        assert await web.take(10) == "exhausted"
        raise_limit(harness)
        await harness.server.flush()
        await web.exchange()
        assert await web.take(10) == "allowed"


async def test_limit_changed_and_budget_reset_while_sites_are_awaited() -> None:
    copy = await (old := before()).run({"web": [10]}, {"web": [20]})
    async with site_server(copy, **RESTORED) as harness:
        budgets = harness.server.budgets
        budgets.configure("tokens", {"limit": 20})
        budgets.reset("tokens")
        await harness.advance(140)
        web = await old.connect(harness, "web")
        assert budgets.get("tokens").usage.upper >= 30
        await harness.advance(41)
        assert budgets.get("tokens").usage.lower == 0
        assert await web.take(20) == "allowed"


async def test_budgets_wait_for_a_site_of_the_copy_until_an_operator_drops_it(caplog: pytest.LogCaptureFixture) -> None:
    copy = await (old := before()).run({"web": [10], "other": [10]}, {})
    with caplog.at_level(logging.WARNING, "countless.budgets"):
        async with site_server(copy, **RESTORED, forget_after=300.0) as harness:
            await old.connect(harness, "other")
            successor = await Spender(harness, "web", 2).connect()  # it does not retire the one of the copy
            await successor.take(5)
            for _ in range(20):
                await harness.advance(30)
            assert state(harness)[0] is BudgetState.RESTORING
            assert "restore waits for sites: missing=1 sites='web of tokens'" in caplog.text
            assert "restore complete, budgets grant again" not in caplog.text
            assert harness.server.drop_site("web") == 1
            await harness.advance(1)
            assert state(harness)[0] is not BudgetState.RESTORING
            assert "restore complete, budgets grant again" in caplog.text
            # The other one was silent for too long. It has reported what it spent.
            assert harness.server.budgets.get("tokens").usage.leaked == 28 + 14 - 10


async def test_rolling_budget_waits_no_longer_than_its_units_count() -> None:
    copy = await Before(BudgetRule(100, slack=0, rolling=120.0)).run({"web": [10]}, {})
    async with site_server(copy, **RESTORED) as harness:
        await harness.advance(239)
        assert state(harness)[0] is BudgetState.RESTORING
        await harness.advance(2)
        assert state(harness)[0] is not BudgetState.RESTORING


async def test_units_of_a_rolling_budget_that_were_handed_over_since_the_copy_count() -> None:
    copy = await (old := Before(BudgetRule(100, slack=0, rolling=600.0))).run({"web": [10]}, {"web": [50, 35]})
    assert old.sites["web"].of().spent + old.sites["web"].of().handed_over == 95  # type: ignore[attr-defined]
    async with site_server(copy, **RESTORED) as harness:
        await harness.advance(140)
        web = await old.connect(harness, "web")
        await harness.advance(41)
        assert [await web.take(6), await web.take(5)] == ["exhausted", "allowed"]


async def test_without_budgets_the_restore_is_over_after_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "countless.budgets"):
        async with site_server(**RESTORED) as harness:
            await harness.advance(179)
            assert "restore complete, budgets grant again" not in caplog.text
            await harness.advance(2)
            assert caplog.text.count("restore complete, budgets grant again") == 1
