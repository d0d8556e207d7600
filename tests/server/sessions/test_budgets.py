"""Budgets at the site server: who holds what, across lost connections, time-outs and restarts."""

import pytest

from countless.core.budget.messages import Ask, BudgetId, Exhausted, Grant, Recall
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import BudgetState, SavedSite
from countless.errors import InvalidParameter, ProtocolError
from countless.server.kinds import lost_holders
from countless.server.kinds.budget_periods import MAX_ENDED, MAX_OPEN_PERIODS
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import (
    VERSION,
    BudgetLeave,
    BudgetLeaveAck,
    BudgetRejected,
    BudgetReset,
    DownItem,
    Hello,
    IncarnationRetired,
    SetBudgetRule,
    UpItem,
)
from support.saved import load_budgets
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.stores import PausedStore

TOKENS = BudgetId("tokens")


def ask(seq: int, want: int, *, spent: int = 0, limit: int = 0, round: int = 0, period: int = 0) -> Ask:
    return Ask(BudgetId("tokens", period), round, seq, spent, 0, limit, want)


class Site:
    """A connected site. Rules that it is sent are kept apart from what else it receives."""

    def __init__(self, harness: SiteServerHarness, name: str, incarnation: int = 1) -> None:
        self.harness, self.name, self.incarnation = harness, name, incarnation

    async def connect(self) -> "Site":
        self.session, self.connection = await self.harness.connect(self.name, self.incarnation)
        await self.harness.server.flush()
        self.connection.received.clear()
        return self

    async def send(self, *items: UpItem) -> list[DownItem]:
        await self.harness.send(self.session, self.connection, *items)
        return self.received

    @property
    def received(self) -> list[DownItem]:
        return [item for item in self.connection.received if not isinstance(item, SetBudgetRule)]

    @property
    def rules(self) -> list[SetBudgetRule]:
        return [item for item in self.connection.received if isinstance(item, SetBudgetRule)]

    def disconnect(self) -> None:
        self.harness.server.on_disconnect(self.session, self.connection)


def create(harness: SiteServerHarness, limit: int, per: str | None = None) -> None:
    harness.server.budgets.create("tokens", BudgetRule(limit, per, slack=0))


def used(harness: SiteServerHarness) -> tuple[int, int, int]:
    """Limit, and the bounds of the spending."""
    usage = harness.server.budgets.get("tokens").usage
    return usage.limit, usage.lower, usage.upper


async def test_ask_is_answered_by_a_grant_and_a_used_up_budget_by_exhausted() -> None:
    async with site_server() as harness:
        create(harness, 10)
        web, other = await Site(harness, "web").connect(), await Site(harness, "other").connect()
        assert await web.send(ask(1, 10)) == [Grant(TOKENS, 0, 10)]
        assert await other.send(ask(1, 1)) == []  # until the recall is answered
        assert web.received[1:] == [Recall(TOKENS, 1)]
        await web.send(ask(2, 0, spent=10, limit=10, round=1))
        assert other.received == [Exhausted(TOKENS, 1, 1)]
        assert used(harness) == (10, 10, 10)


async def test_rule_is_sent_before_the_first_grant_and_when_it_changes() -> None:
    async with site_server() as harness:
        create(harness, 10)
        web = await Site(harness, "web").connect()
        await web.send(ask(1, 1))
        rule = SetBudgetRule(TOKENS, 10, None, "UTC", None, 0, "spending", "charge", "refuse")
        assert web.connection.received == [rule, Grant(TOKENS, 0, 3)]
        assert (await web.send(ask(2, 4, limit=3)), web.rules) == ([Grant(TOKENS, 0, 6)], [])
        harness.server.budgets.configure("tokens", {"limit": 20})
        await harness.server.flush()
        assert web.rules == [rule._replace(limit=20)]
        web.disconnect()
        await web.connect()
        await web.send(ask(3, 0, limit=6))
        assert web.rules == [rule._replace(limit=20)]


async def test_grant_is_sent_after_it_is_saved() -> None:
    store = PausedStore()
    async with site_server(store) as harness:
        create(harness, 10)
        web = await Site(harness, "web").connect()
        store.pause()
        harness.server.on_frame(web.session, web.connection, [ask(1, 4)], 10)
        await store.save_waits()
        assert web.received == []
        store.resume()
        await harness.server.flush()
        assert web.received == [Grant(TOKENS, 0, 4)]
        assert load_budgets(store)["tokens"].periods[0].sites == {web.session.site_id: SavedSite(4)}


async def test_after_a_restart_nothing_is_granted_twice() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness, 10)
        await (await Site(harness, "web").connect()).send(ask(1, 10))
    async with site_server(store) as harness:
        web, other = await Site(harness, "web").connect(), await Site(harness, "other").connect()
        assert await other.send(ask(1, 1)) == []  # the first holder has not answered
        assert await web.send(ask(2, 0, spent=9, limit=10)) == [Recall(TOKENS, 1)]
        await web.send(ask(3, 0, spent=9, limit=9, round=1))
        assert other.received == [Grant(TOKENS, 1, 1)]
        assert used(harness)[1] == 9


async def test_reported_spending_is_known_after_a_restart() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness, 10)
        web = await Site(harness, "web").connect()
        await web.send(ask(1, 6), ask(2, 1, spent=5, limit=6))
        assert used(harness) == (10, 5, 9)
    async with site_server(store) as harness:
        assert used(harness) == (10, 5, 9)
        with pytest.raises(InvalidParameter, match="from 5, the units spent already"):
            harness.server.budgets.configure("tokens", {"limit": 4})


async def test_limit_of_a_site_that_timed_out_counts_as_spent() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness, 10)
        web, other = await Site(harness, "web").connect(), await Site(harness, "other").connect()
        await web.send(ask(1, 10))
        web.disconnect()
        assert await other.send(ask(1, 1)) == []
        await harness.advance(11)
        assert other.received == [Exhausted(TOKENS, 1, 1)]
        await web.connect()
        assert await web.send(ask(2, 0, spent=3, limit=10)) == [Recall(TOKENS, 1)]


async def test_retired_incarnation_is_given_up_and_its_successor_hands_in_what_it_spent() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness, 10)
        web = await Site(harness, "web", 1).connect()
        await web.send(ask(1, 10))
        web.disconnect()
        await harness.advance(11)
        successor = await Site(harness, "web", 2).connect()
        assert harness.server.budgets.get("tokens").usage.leaked == 10
        late = FakeConnection()
        assert await harness.server.on_hello(late, Hello(VERSION, "web", 1)) is None
        assert late.received == [IncarnationRetired(())]
        for _ in range(2):
            assert await successor.send(BudgetLeave(TOKENS, 1, 4)) == [BudgetLeaveAck(TOKENS, 1)]
        assert used(harness) == (10, 4, 4)
        assert harness.server.budgets.get("tokens").usage.leaked == 0


@pytest.mark.parametrize(("kind", "charged"), [("spending", 5), ("in_flight", 2)])
async def test_units_of_a_lost_site_that_it_has_not_reported_are_free_if_that_is_the_rule(
    kind: str, charged: int
) -> None:
    async with site_server(silent_after=10) as harness:
        harness.server.budgets.create("tokens", BudgetRule(10, slack=0, kind=kind, on_loss="free"))
        web = await Site(harness, "web", 1).connect()
        await web.send(ask(1, 10), Ask(TOKENS, 0, 2, 2, 3, 10, 0))
        web.disconnect()
        await harness.advance(11)
        assert used(harness) == (10, 2, 10)
        successor = await Site(harness, "web", 2).connect()
        assert used(harness) == (10, charged, charged)
        assert harness.server.budgets.get("tokens").usage.leaked == 0
        assert (await successor.send(ask(1, 10 - charged)))[0] == Grant(TOKENS, 0, 10 - charged)
        late = await Site(harness, "web", 1).connect()  # it was cut off: it begins again
        assert (await late.send(Ask(TOKENS, 0, 3, 9, 0, 10, 1)))[0] == BudgetReset(TOKENS)


async def test_overdraft_may_be_handed_in_if_that_is_the_rule() -> None:
    async with site_server() as harness:
        harness.server.budgets.create("tokens", BudgetRule(10, slack=0, on_unreachable="overdraft"))
        web = await Site(harness, "web").connect()
        await web.send(ask(1, 10))
        assert (await web.send(BudgetLeave(TOKENS, 1, 13)))[-1] == BudgetLeaveAck(TOKENS, 1)
        assert used(harness) == (10, 13, 13)


async def test_site_that_leaves_hands_in_exactly_what_it_spent_and_is_forgotten() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness, 10)
        web = await Site(harness, "web").connect()
        await web.send(ask(1, 10))
        with pytest.raises(ProtocolError, match="its limit is 10"):
            await web.send(BudgetLeave(TOKENS, 1, 11))
        for _ in range(2):
            assert await web.send(BudgetLeave(TOKENS, 1, 4)) == [BudgetLeaveAck(TOKENS, 1)]
        assert used(harness) == (10, 4, 4)
        assert await web.send(ask(2, 1, spent=4, limit=10)) == [BudgetReset(TOKENS)]
        web.disconnect()
        assert len(harness.server.sessions) == 0
    assert load_budgets(store)["tokens"].periods[0].sites == {}
    async with site_server(store) as harness:
        assert used(harness) == (10, 4, 4)


async def test_incarnation_that_is_connected_is_not_handed_in_by_another() -> None:
    async with site_server() as harness:
        create(harness, 10)
        await (await Site(harness, "web", 1).connect()).send(ask(1, 10))
        second = await Site(harness, "web", 2).connect()
        with pytest.raises(ProtocolError, match="is connected"):
            await second.send(BudgetLeave(TOKENS, 1, 0))


@pytest.mark.slow
async def test_incarnations_that_were_given_up_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_holders, "MAX_GIVEN_UP", 3)
    store = MemoryStore()
    async with site_server(store, silent_after=10) as harness:
        create(harness, 1000)
        for number in range(1, 6):
            web = await Site(harness, "web", number).connect()
            await web.send(ask(1, 1))
            web.disconnect()
            await harness.advance(11)
        web = await Site(harness, "web", 6).connect()
        before = used(harness)
        assert await web.send(BudgetLeave(TOKENS, 2, 0)) == [BudgetLeaveAck(TOKENS, 2)]
        assert used(harness) == before  # it is forgotten, and stays charged
        await web.send(BudgetLeave(TOKENS, 3, 0))
        assert used(harness)[2] < before[2]
    assert len(load_budgets(store)["tokens"].periods[0].sites) == 2
    async with site_server(store) as harness:
        assert 0 < harness.server.budgets.get("tokens").usage.leaked == used(harness)[2] < before[2]


async def test_unknown_and_deleted_budgets_are_rejected_and_a_new_one_starts_from_zero() -> None:
    async with site_server() as harness:
        web = await Site(harness, "web").connect()
        assert await web.send(ask(1, 1)) == [BudgetRejected(TOKENS, "there is no budget 'tokens'")]
        create(harness, 10)
        assert await web.send(ask(2, 10)) == [Grant(TOKENS, 0, 10)]
        web.connection.received.clear()
        harness.server.budgets.delete("tokens")
        await harness.server.flush()
        assert web.received == [BudgetRejected(TOKENS, "budget 'tokens' was deleted")]
        create(harness, 20)
        assert await web.send(ask(3, 1, spent=5, limit=10)) == [BudgetReset(TOKENS)]
        assert [rule.limit for rule in web.rules] == [20]
        assert await web.send(BudgetLeave(TOKENS, 7, 5)) == [BudgetLeaveAck(TOKENS, 7)]
        assert used(harness) == (20, 0, 0)


async def test_limit_below_what_is_spent_is_refused() -> None:
    async with site_server() as harness:
        create(harness, 10)
        web = await Site(harness, "web").connect()
        await web.send(ask(1, 8))
        await web.send(ask(2, 0, spent=8, limit=8))
        with pytest.raises(InvalidParameter, match="limit must be from 8, the units spent already"):
            harness.server.budgets.configure("tokens", {"limit": 7, "slack": 0.5})
        assert harness.server.budgets.get("tokens").rule == BudgetRule(10, slack=0)


async def test_reset_forgives_what_sites_report() -> None:
    async with site_server() as harness:
        create(harness, 10)
        harness.server.budgets.reset("tokens")  # nothing was spent yet
        web = await Site(harness, "web").connect()
        await web.send(ask(1, 10))
        web.connection.received.clear()
        assert harness.server.budgets.reset("tokens").usage.state is BudgetState.RESETTING
        await harness.server.flush()
        assert web.received == [Recall(TOKENS, 1)]
        await web.send(ask(2, 0, spent=9, limit=9, round=1))
        assert used(harness) == (10, 0, 0)
        assert await web.send(ask(3, 10, spent=9, limit=9, round=1)) == [Grant(TOKENS, 1, 19)]


async def test_overdraft_of_a_site_that_was_not_connected_before_is_charged() -> None:
    async with site_server() as harness:
        rule = BudgetRule(10, slack=0, on_unreachable="overdraft")
        harness.server.budgets.create("tokens", rule)
        web, other = await Site(harness, "web").connect(), await Site(harness, "other").connect()
        await web.send(ask(1, 0, spent=7, limit=7))
        assert used(harness) == (10, 7, 7)
        assert await other.send(ask(1, 4)) == [Exhausted(TOKENS, 0, 4)]


# Periods

HOUR_S = 3600
NOON = 20_000 * 24  # an hour, by its number


class WallClock:
    def __init__(self) -> None:
        self.seconds = NOON * HOUR_S + 10.0

    def __call__(self) -> float:
        return self.seconds


async def test_site_that_does_not_know_the_rule_is_sent_it_and_nothing_else() -> None:
    async with site_server(wall_clock=WallClock()) as harness:
        create(harness, 10, "hour")
        web = await Site(harness, "web").connect()
        assert await web.send(ask(1, 1)) == []
        assert [rule.per for rule in web.rules] == ["hour"]
        assert harness.server.budgets.get("tokens").periods == {}
        assert await web.send(ask(1, 10, period=NOON)) == [Grant(BudgetId("tokens", NOON), 0, 10)]


async def test_neighbouring_periods_have_a_limit_each_and_others_are_refused() -> None:
    async with site_server(wall_clock=WallClock()) as harness:
        create(harness, 10, "hour")
        web = await Site(harness, "web").connect()
        for period in (NOON - 1, NOON, NOON + 1):
            assert await web.send(ask(1, 10, period=period)) == [Grant(BudgetId("tokens", period), 0, 10)]
        for period in (1, NOON - 2, NOON + 2, 2**62):
            [refusal] = await web.send(ask(1, 1, period=period))
            assert isinstance(refusal, BudgetRejected)
            assert "check the clock of the site" in refusal.reason
        assert sorted(harness.server.budgets.get("tokens").periods) == [NOON - 1, NOON, NOON + 1]
        assert used(harness) == (10, 0, 10)
        assert harness.server.budgets.get("tokens").window == (NOON * HOUR_S, (NOON + 1) * HOUR_S)


async def test_budget_without_periods_refuses_any() -> None:
    async with site_server() as harness:
        create(harness, 10)
        web = await Site(harness, "web").connect()
        budget = BudgetId("tokens", 5)
        assert await web.send(ask(1, 1, period=5)) == [BudgetRejected(budget, "budget 'tokens' has no periods")]
        assert [rule.per for rule in web.rules] == [None]  # the site may know the rule of a deleted one


async def test_ended_period_is_closed_after_a_grace_with_all_its_rows() -> None:
    store, wall = MemoryStore(), WallClock()
    async with site_server(store, wall_clock=wall, silent_after=80_000) as harness:
        create(harness, 10, "hour")
        web, gone = await Site(harness, "web").connect(), await Site(harness, "gone").connect()
        await web.send(ask(1, 3, period=NOON))
        await gone.send(ask(1, 3, period=NOON))
        gone.disconnect()
        wall.seconds += HOUR_S
        await harness.advance(1)
        await web.send(ask(1, 4, period=NOON + 1))
        assert used(harness) == (10, 0, 4)
        await harness.advance(HOUR_S - 1)
        assert sorted(harness.server.budgets.get("tokens").periods) == [NOON, NOON + 1]
        assert await web.send(ask(2, 0, spent=1, limit=3, period=NOON)) == []  # a hold was settled: it still counts
        await harness.advance(1)
        assert sorted(harness.server.budgets.get("tokens").periods) == [NOON + 1]
        assert [session.site_id.site for session in harness.server.sessions] == ["web"]
        assert isinstance((await web.send(ask(3, 0, spent=1, limit=3, period=NOON)))[0], BudgetRejected)
        assert await web.send(BudgetLeave(BudgetId("tokens", NOON), 1, 1)) == [
            BudgetLeaveAck(BudgetId("tokens", NOON), 1)
        ]
    assert [*load_budgets(store)["tokens"].periods] == [NOON + 1]
    assert load_budgets(store)["tokens"].fields.first_period == NOON + 1


async def test_closed_period_is_never_opened_again_when_the_clock_goes_back() -> None:
    store, wall = MemoryStore(), WallClock()
    async with site_server(store, wall_clock=wall) as harness:
        create(harness, 10, "hour")
        await (await Site(harness, "web").connect()).send(ask(1, 10, period=NOON))
        wall.seconds += HOUR_S
        await harness.advance(1)
        await harness.advance(HOUR_S)
    wall.seconds -= HOUR_S
    async with site_server(store, wall_clock=wall) as harness:
        other = await Site(harness, "other").connect()
        [refusal] = await other.send(ask(1, 1, period=NOON))
        assert isinstance(refusal, BudgetRejected)
        assert "was closed when the coordinator's clock was ahead: it can be used from 2024-10-04T01:" in refusal.reason
        assert harness.server.budgets.get("tokens").usage == (10, 0, 10, 0, BudgetState.CLOSED)
        assert await other.send(ask(1, 1, period=NOON + 1)) == [Grant(BudgetId("tokens", NOON + 1), 0, 3)]


async def test_coordinator_that_is_restarted_in_every_period_opens_new_ones_for_ever() -> None:
    store, wall = MemoryStore(), WallClock()
    async with site_server(store, wall_clock=wall) as harness:
        create(harness, 10, "hour")
    for period in range(NOON, NOON + 3 * MAX_OPEN_PERIODS):
        async with site_server(store, wall_clock=wall) as harness:
            await harness.advance(1)
            web = await Site(harness, "web", period).connect()
            assert await web.send(ask(1, 10, period=period)) == [Grant(BudgetId("tokens", period), 0, 10)]
            wall.seconds += HOUR_S
            await harness.advance(HOUR_S - 2)
    assert len(load_budgets(store)["tokens"].periods) <= MAX_ENDED + 1


async def test_wrong_clock_that_is_corrected_in_time_closes_nothing() -> None:
    wall = WallClock()
    async with site_server(wall_clock=wall) as harness:
        create(harness, 10, "hour")
        web = await Site(harness, "web").connect()
        await web.send(ask(1, 10, period=NOON))
        wall.seconds += 1000 * HOUR_S
        await harness.advance(HOUR_S / 2)
        wall.seconds -= 1000 * HOUR_S
        await harness.advance(HOUR_S / 2)
        wall.seconds += 1000 * HOUR_S
        await harness.advance(HOUR_S / 2)
        wall.seconds -= 1000 * HOUR_S
        assert used(harness) == (10, 0, 10)
        assert await web.send(ask(2, 0, limit=10, spent=4, period=NOON)) == []


async def test_first_shares_of_a_period_are_made_for_the_holders_of_the_last() -> None:
    wall = WallClock()
    async with site_server(wall_clock=wall) as harness:
        create(harness, 1000, "hour")
        sites = [await Site(harness, f"web-{number}").connect() for number in range(10)]
        for site in sites:
            await site.send(ask(1, 1, period=NOON))
        assert await sites[0].send(ask(1, 1, period=NOON + 1)) == [Grant(BudgetId("tokens", NOON + 1), 0, 28)]


async def test_restart_continues_every_open_period() -> None:
    store, wall = MemoryStore(), WallClock()
    async with site_server(store, wall_clock=wall) as harness:
        create(harness, 10, "hour")
        web = await Site(harness, "web").connect()
        for period in (NOON, NOON + 1):
            await web.send(ask(1, 10, period=period))
    async with site_server(store, wall_clock=wall) as harness:
        await (web := Site(harness, "web")).connect()
        for period in (NOON, NOON + 1):
            budget = BudgetId("tokens", period)
            assert await web.send(ask(2, 0, spent=9, limit=10, period=period)) == [Recall(budget, 1)]
            assert await web.send(ask(3, 2, spent=9, limit=9, round=1, period=period)) == [Exhausted(budget, 1, 2)]


async def test_limit_is_raised_and_lowered_in_every_open_period() -> None:
    async with site_server(wall_clock=WallClock()) as harness:
        create(harness, 10, "hour")
        web = await Site(harness, "web").connect()
        for period in (NOON, NOON + 1):
            await web.send(ask(1, 10, period=period))
        harness.server.budgets.configure("tokens", {"limit": 5})
        assert used(harness) == (5, 0, 10)
        web.connection.received.clear()
        await harness.server.flush()
        assert {item.budget.period for item in web.received if isinstance(item, Recall)} == {NOON, NOON + 1}


@pytest.mark.parametrize(("field", "value"), [("per", "day"), ("per", None), ("tz", "Asia/Tokyo"), ("anchor", 5)])
async def test_calendar_of_a_budget_cannot_be_changed(field: str, value: object) -> None:
    async with site_server(wall_clock=WallClock()) as harness:
        create(harness, 10, "hour")
        with pytest.raises(
            InvalidParameter, match="as it was created; delete the budget and create it again"
        ) as raised:
            harness.server.budgets.configure("tokens", {field: value, "limit": 5})
        assert raised.value.parameter == field
        assert harness.server.budgets.get("tokens").rule == BudgetRule(10, "hour", slack=0)
