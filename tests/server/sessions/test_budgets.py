"""Budgets at the site server: who holds what, across lost connections, time-outs and restarts."""

import pytest

from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import BudgetState, SavedSite
from countless.errors import InvalidParameter, ProtocolError
from countless.server.kinds import lost_holders
from countless.server.kinds.budget_periods import MAX_ENDED, MAX_OPEN_PERIODS
from countless.server.storage.memory_store import MemoryStore
from countless.wire.budgets import BudgetLeave, BudgetLeaveAck, BudgetRejected, SetBudgetRule
from countless.wire.frames import VERSION, Hello, IncarnationRetired
from support.saved import load_budgets
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.spender import TOKENS, Spender
from support.stores import PausedStore


def create(harness: SiteServerHarness, limit: int, per: str | None = None) -> None:
    harness.server.budgets.create("tokens", BudgetRule(limit, per, slack=0))


def used(harness: SiteServerHarness) -> tuple[int, int, int]:
    """Limit, and the bounds of the spending."""
    usage = harness.server.budgets.get("tokens").usage
    return usage.limit, usage.lower, usage.upper


async def connected(harness: SiteServerHarness, *names: str) -> list[Spender]:
    return [await Spender(harness, name).connect() for name in names]


async def test_request_is_granted_or_refused() -> None:
    async with site_server() as harness:
        create(harness, 10)
        web, other = await connected(harness, "web", "other")
        assert await web.take(10) == "allowed"
        assert web.received == [Quota(TOKENS, since=1, number=1, granted=10)]
        assert await other.take(1) == "exhausted"
        assert other.received == [Quota(TOKENS, since=1, number=1, granted=0, refuse_from=1)]
        assert used(harness) == (10, 0, 10)


async def test_room_that_a_site_was_lent_is_recalled_for_another_one() -> None:
    async with site_server() as harness:
        create(harness, 10)
        web, other = await connected(harness, "web", "other")
        assert await web.take(1) == "allowed"
        assert web.received == [Quota(TOKENS, since=1, number=1, granted=3, keep=True)]
        assert await other.take(9) == "waiting"
        assert web.received[1:] == [Quota(TOKENS, since=1, number=2, granted=3, reply=True)]
        await web.exchange()
        assert await other.exchange() == ["allowed"]
        assert used(harness) == (10, 1, 10)
        budget = harness.server.budgets.get("tokens")
        assert (budget.asks, budget.recalls) == (2, 1)


async def test_rule_is_sent_before_the_first_grant_and_when_it_changes() -> None:
    async with site_server() as harness:
        create(harness, 10)
        (web,) = await connected(harness, "web")
        await web.take(1)
        rule = SetBudgetRule(TOKENS, 10, None, "UTC", None, 0, "spending", "charge", "refuse")
        assert web.connection.received == [rule, *web.quotas]
        assert (await web.take(4), web.rules) == ("allowed", [])
        harness.server.budgets.configure("tokens", {"limit": 20})
        await harness.server.flush()
        assert web.rules == [rule._replace(limit=20)]
        web.disconnect()
        await web.connect()
        assert web.rules == [rule._replace(limit=20)]


async def test_grant_is_sent_after_it_is_saved() -> None:
    store = PausedStore()
    async with site_server(store) as harness:
        create(harness, 10)
        (web,) = await connected(harness, "web")
        store.pause()
        harness.server.on_frame(web.session, web.connection, list(web.of().take(4).messages), 10)
        await store.save_waits()
        assert web.received == []
        store.resume()
        await harness.server.flush()
        assert [quota.granted for quota in web.quotas] == [4]
        assert load_budgets(store)["tokens"].periods[0].sites == {web.session.site_id: SavedSite(4, since=1)}


async def test_after_a_restart_nothing_is_granted_twice() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness, 10)
        (web,) = await connected(harness, "web")
        assert [await web.take(1), await web.take(1)] == 2 * ["allowed"]
    async with site_server(store) as harness:
        (other,) = await connected(harness, "other")
        assert await other.take(9) == "waiting"  # the first holder has not said what it has
        web.harness = harness
        await web.connect()
        assert await other.exchange() == ["exhausted"]
        assert await other.take(8) == "waiting"
        await web.exchange()
        assert await other.exchange() == ["allowed"]
        assert used(harness) == (10, 2, 10)


async def test_site_is_sent_nothing_on_a_new_connection_before_it_has_asked() -> None:
    """A restarted coordinator does not know the number of the last message that the site has seen."""
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness, 10)
        (web,) = await connected(harness, "web")
        await web.take(1)
    async with site_server(store) as harness:
        session, connection = await harness.connect("web")
        harness.server.budgets.reset("tokens")
        harness.server.budgets.configure("tokens", {"limit": 9})
        await harness.server.flush()
        assert not any(isinstance(item, Quota) for item in connection.received)
        (quota,) = [item for item in await harness.send(session, connection, web.of().resend()) if type(item) is Quota]
        assert quota.number > web.of().number


async def test_totals_of_many_holds_pass_64_bits() -> None:
    store, limit = MemoryStore(), 1 << 62
    async with site_server(store) as harness:
        create(harness, limit)
        (web,) = await connected(harness, "web")
        for _ in range(60):
            taken = web.of().reserve(limit)
            await web.send(*taken.messages)
            for quota in web.quotas:
                web.of().receive(quota)
            web.of().repeat()
            assert web.of().reserve(limit).verdict == "allowed"
            web.of().settle(limit, 0)
            await web.send(*web.of().proceed())
    assert load_budgets(store)["tokens"].periods[0].sites[web.session.site_id].granted == 60 * limit
    async with site_server(store) as harness:
        web.harness = harness
        await web.connect()
        assert await web.take(limit) == "allowed"


async def test_limit_of_a_site_that_timed_out_counts_as_used() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness, 10)
        web, other = await connected(harness, "web", "other")
        await web.take(1)
        web.disconnect()
        assert await other.take(8) == "waiting"
        await harness.advance(11)
        assert await other.exchange() == ["exhausted"]
        await web.connect()
        assert web.of().room == 2  # it is lent them as before
        await other.exchange()  # so it may ask again
        assert await other.take(8) == "waiting"
        await web.exchange()
        assert await other.exchange() == ["allowed"]


async def test_retired_incarnation_is_given_up_and_its_successor_hands_in_what_it_spent() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness, 10)
        web = await Spender(harness, "web", 1).connect()
        await web.take(10)
        web.disconnect()
        await harness.advance(11)
        successor = await Spender(harness, "web", 2).connect()
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
        web = await Spender(harness, "web", 1).connect()
        await web.take(2)
        await web.send(Ask(TOKENS, 2, 1, 1, 3, 0, 2, 0, 7))
        await web.send(Ask(TOKENS, 3, 1, 2, 10, 0, 2, 3))
        web.disconnect()
        await harness.advance(11)
        assert used(harness) == (10, 2, 10)
        successor = await Spender(harness, "web", 2).connect()
        assert used(harness) == (10, charged, charged)
        assert harness.server.budgets.get("tokens").usage.leaked == 0
        assert await successor.take(10 - charged) == "allowed"
        late = await Spender(harness, "web", 1).connect()  # it was cut off: it begins again
        (answer,) = await late.send(Ask(TOKENS, 4, 1, 2, 10, 0, 9, 0, 1))
        assert answer == Quota(TOKENS, since=4, number=1, granted=0)


@pytest.mark.parametrize("rule_changes", [False, True])
async def test_overdraft_is_handed_in_even_if_the_rule_has_changed_since(rule_changes: bool) -> None:
    async with site_server() as harness:
        harness.server.budgets.create("tokens", BudgetRule(10, slack=0, on_unreachable="overdraft"))
        (web,) = await connected(harness, "web")
        await web.take(10)
        if rule_changes:
            harness.server.budgets.configure("tokens", {"on_unreachable": "refuse"})
        assert await web.send(BudgetLeave(TOKENS, 1, 13)) == [BudgetLeaveAck(TOKENS, 1)]
        assert used(harness) == (10, 13, 13)


async def test_site_that_leaves_hands_in_exactly_what_it_spent_and_is_forgotten() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness, 10)
        (web,) = await connected(harness, "web")
        await web.take(10)
        for _ in range(2):
            assert await web.send(BudgetLeave(TOKENS, 1, 4)) == [BudgetLeaveAck(TOKENS, 1)]
        assert used(harness) == (10, 4, 4)
        assert await web.take(1) == "allowed"  # as a new holder, which has the state of the old one no longer
        assert (web.of().since, web.of().granted) == (2, 3)
        await web.send(BudgetLeave(TOKENS, 1, 1))
        web.disconnect()
        assert len(harness.server.sessions) == 0
    assert load_budgets(store)["tokens"].periods[0].sites == {}
    async with site_server(store) as harness:
        assert used(harness) == (10, 5, 5)


async def test_incarnation_that_is_connected_is_not_handed_in_by_another() -> None:
    async with site_server() as harness:
        create(harness, 10)
        await (await Spender(harness, "web", 1).connect()).take(10)
        second = await Spender(harness, "web", 2).connect()
        with pytest.raises(ProtocolError, match="is connected"):
            await second.send(BudgetLeave(TOKENS, 1, 0))


async def test_older_copy_that_is_handed_in_leaves_the_whole_limit_charged() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness, 10)
        web = await Spender(harness, "web", 1).connect()
        assert [await web.take(5), await web.take(2)] == 2 * ["allowed"]
        web.disconnect()
        await harness.advance(11)
        successor = await Spender(harness, "web", 2).connect()
        assert await successor.send(BudgetLeave(TOKENS, 1, 4)) == [BudgetLeaveAck(TOKENS, 1)]
        assert used(harness) == (10, 5, 8)


@pytest.mark.slow
async def test_incarnations_that_were_given_up_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_holders, "MAX_GIVEN_UP", 3)
    store = MemoryStore()
    async with site_server(store, silent_after=10) as harness:
        create(harness, 1000)
        for number in range(1, 6):
            web = await Spender(harness, "web", number).connect()
            await web.take(1)
            web.disconnect()
            await harness.advance(11)
        web = await Spender(harness, "web", 6).connect()
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
        (web,) = await connected(harness, "web")
        await web.take(1)
        assert web.received == [BudgetRejected(TOKENS, "there is no budget 'tokens'")]
        create(harness, 10)
        assert await web.take(10) == "allowed"
        harness.server.budgets.delete("tokens")
        await harness.server.flush()
        assert web.received[-1] == BudgetRejected(TOKENS, "budget 'tokens' was deleted")
        create(harness, 20)
        assert (await web.take(20), web.of().granted) == ("allowed", 20)  # what it has of the first does not count
        assert [rule.limit for rule in web.rules] == [20]
        assert await web.send(BudgetLeave(TOKENS, 7, 5)) == [BudgetLeaveAck(TOKENS, 7)]
        assert used(harness) == (20, 0, 20)


async def test_units_of_a_deleted_budget_are_not_handed_in_to_a_new_one() -> None:
    """The process was killed before it knew of the new budget, of which it is a holder already."""
    async with site_server(silent_after=10) as harness:
        create(harness, 10)
        (web,) = await connected(harness, "web")
        await web.take(10)
        ask = web.of().resend()
        harness.server.budgets.delete("tokens")
        create(harness, 20)
        await web.send(ask)
        web.disconnect()
        await harness.advance(11)
        successor = await Spender(harness, "web", 2).connect()
        assert await successor.send(BudgetLeave(TOKENS, 1, 10)) == [BudgetLeaveAck(TOKENS, 1)]
        assert used(harness) == (20, 0, 0)


async def test_ask_that_crosses_the_end_of_a_budget_does_not_wait_for_ever() -> None:
    """It reaches the new budget of that name before the site knows that the old one was deleted."""
    async with site_server() as harness:
        create(harness, 10)
        (web,) = await connected(harness, "web")
        await web.take(1)
        await web.send()
        crossing = web.of().resend()
        harness.server.budgets.delete("tokens")
        create(harness, 20)
        harness.server.on_frame(web.session, web.connection, [crossing], 10)
        await web.exchange()
        assert await web.take(20) == "allowed"


async def test_limit_below_what_is_spent_is_refused() -> None:
    async with site_server() as harness:
        create(harness, 10)
        (web,) = await connected(harness, "web")
        assert [await web.take(8), await web.take(1)] == 2 * ["allowed"]
        with pytest.raises(InvalidParameter, match="limit must be from 8, the units spent already"):
            harness.server.budgets.configure("tokens", {"limit": 7, "slack": 0.5})
        assert harness.server.budgets.get("tokens").rule == BudgetRule(10, slack=0)


async def test_reset_forgives_what_sites_report() -> None:
    async with site_server() as harness:
        create(harness, 10)
        harness.server.budgets.reset("tokens")  # nothing was spent yet
        (web,) = await connected(harness, "web")
        await web.take(9)
        await web.send()
        assert harness.server.budgets.reset("tokens").usage.state is BudgetState.RESETTING
        await web.exchange()
        assert used(harness) == (10, 0, 0)
        assert await web.take(10) == "allowed"


async def test_reset_does_not_forgive_a_site_that_does_not_answer() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness, 10)
        web, silent = await connected(harness, "web", "silent")
        assert [await web.take(4), await silent.take(4)] == 2 * ["allowed"]
        harness.server.budgets.reset("tokens")
        await web.exchange()
        assert harness.server.budgets.get("tokens").usage.state is BudgetState.RESETTING
        harness.time += 51  # so it has not sent a heartbeat
        harness.server.on_frame(web.session, web.connection, [], 0)
        await harness.advance(0)
        assert used(harness) == (10, 0, 4)
        assert [await web.take(7), await web.take(6)] == ["exhausted", "allowed"]


async def test_overdraft_of_a_site_that_was_not_connected_before_is_charged() -> None:
    async with site_server() as harness:
        rule = BudgetRule(10, slack=0, on_unreachable="overdraft")
        harness.server.budgets.create("tokens", rule)
        web, other = await connected(harness, "web", "other")
        web.of().overdraw(7)
        web.of().take(7)
        await web.send(web.of().resend())
        assert used(harness) == (10, 7, 7)
        assert await other.take(4) == "exhausted"


# Periods

HOUR_S = 3600
NOON = 20_000 * 24  # an hour, by its number


def at(period: int) -> BudgetId:
    return BudgetId("tokens", period)


class WallClock:
    def __init__(self) -> None:
        self.seconds = NOON * HOUR_S + 10.0

    def __call__(self) -> float:
        return self.seconds


async def test_site_that_does_not_know_the_rule_is_sent_it_and_nothing_else() -> None:
    async with site_server(wall_clock=WallClock()) as harness:
        create(harness, 10, "hour")
        (web,) = await connected(harness, "web")
        assert await web.take(1) == "waiting"
        assert web.received == []
        assert [rule.per for rule in web.rules] == ["hour"]
        assert harness.server.budgets.get("tokens").periods == {}
        assert await web.take(10, at(NOON)) == "allowed"


async def test_neighbouring_periods_have_a_limit_each_and_others_are_refused() -> None:
    async with site_server(wall_clock=WallClock()) as harness:
        create(harness, 10, "hour")
        (web,) = await connected(harness, "web")
        for period in (NOON - 1, NOON, NOON + 1):
            assert await web.take(10, at(period)) == "allowed"
        for period in (1, NOON - 2, NOON + 2, 2**62):
            await web.take(1, at(period))
            [refusal] = web.received
            assert isinstance(refusal, BudgetRejected)
            assert "check the clock of the site" in refusal.reason
        assert sorted(harness.server.budgets.get("tokens").periods) == [NOON - 1, NOON, NOON + 1]
        assert used(harness) == (10, 0, 10)
        assert harness.server.budgets.get("tokens").window == (NOON * HOUR_S, (NOON + 1) * HOUR_S)


async def test_budget_without_periods_refuses_any() -> None:
    async with site_server() as harness:
        create(harness, 10)
        (web,) = await connected(harness, "web")
        await web.take(1, at(5))
        assert web.received == [BudgetRejected(at(5), "budget 'tokens' has no periods")]
        assert [rule.per for rule in web.rules] == [None]  # the site may know the rule of a deleted one


async def test_ended_period_is_closed_after_a_grace_with_all_its_rows() -> None:
    store, wall = MemoryStore(), WallClock()
    async with site_server(store, wall_clock=wall, silent_after=80_000) as harness:
        create(harness, 10, "hour")
        web, gone = await connected(harness, "web", "gone")
        await web.take(3, at(NOON))
        await gone.take(3, at(NOON))
        gone.disconnect()
        wall.seconds += HOUR_S
        await harness.advance(1)
        await web.take(4, at(NOON + 1))
        assert used(harness) == (10, 0, 4)
        await harness.advance(HOUR_S - 1)
        assert sorted(harness.server.budgets.get("tokens").periods) == [NOON, NOON + 1]
        await web.send(web.of(at(NOON)).resend())
        assert web.received == []  # it still counts
        await harness.advance(1)
        assert sorted(harness.server.budgets.get("tokens").periods) == [NOON + 1]
        assert [session.site_id.site for session in harness.server.sessions] == ["web"]
        assert isinstance((await web.send(web.of(at(NOON)).resend()))[0], BudgetRejected)
        assert await web.send(BudgetLeave(at(NOON), 1, 1)) == [BudgetLeaveAck(at(NOON), 1)]
    assert [*load_budgets(store)["tokens"].periods] == [NOON + 1]
    assert load_budgets(store)["tokens"].fields.first_period == NOON + 1


async def test_closed_period_is_never_opened_again_when_the_clock_goes_back() -> None:
    store, wall = MemoryStore(), WallClock()
    async with site_server(store, wall_clock=wall) as harness:
        create(harness, 10, "hour")
        await (await Spender(harness, "web").connect()).take(10, at(NOON))
        wall.seconds += HOUR_S
        await harness.advance(1)
        await harness.advance(HOUR_S)
    wall.seconds -= HOUR_S
    async with site_server(store, wall_clock=wall) as harness:
        (other,) = await connected(harness, "other")
        await other.take(1, at(NOON))
        [refusal] = other.received
        assert isinstance(refusal, BudgetRejected)
        assert "was closed when the coordinator's clock was ahead: it can be used from 2024-10-04T01:" in refusal.reason
        assert harness.server.budgets.get("tokens").usage == (10, 0, 10, 0, BudgetState.CLOSED)
        assert await other.take(1, at(NOON + 1)) == "allowed"


async def test_coordinator_that_is_restarted_in_every_period_opens_new_ones_for_ever() -> None:
    store, wall = MemoryStore(), WallClock()
    async with site_server(store, wall_clock=wall) as harness:
        create(harness, 10, "hour")
    for period in range(NOON, NOON + 3 * MAX_OPEN_PERIODS):
        async with site_server(store, wall_clock=wall) as harness:
            await harness.advance(1)
            web = await Spender(harness, "web", period).connect()
            assert await web.take(10, at(period)) == "allowed"
            wall.seconds += HOUR_S
            await harness.advance(HOUR_S - 2)
    assert len(load_budgets(store)["tokens"].periods) <= MAX_ENDED + 1


async def test_wrong_clock_that_is_corrected_in_time_closes_nothing() -> None:
    wall = WallClock()
    async with site_server(wall_clock=wall) as harness:
        create(harness, 10, "hour")
        (web,) = await connected(harness, "web")
        await web.take(10, at(NOON))
        wall.seconds += 1000 * HOUR_S
        await harness.advance(HOUR_S / 2)
        wall.seconds -= 1000 * HOUR_S
        await harness.advance(HOUR_S / 2)
        wall.seconds += 1000 * HOUR_S
        await harness.advance(HOUR_S / 2)
        wall.seconds -= 1000 * HOUR_S
        assert used(harness) == (10, 0, 10)
        await web.send(web.of(at(NOON)).resend())
        assert web.received == []


async def test_first_shares_of_a_period_are_made_for_the_holders_of_the_last() -> None:
    wall = WallClock()
    async with site_server(wall_clock=wall) as harness:
        create(harness, 1000, "hour")
        sites = await connected(harness, *(f"web-{number}" for number in range(10)))
        for site in sites:
            await site.take(1, at(NOON))
        await sites[0].take(1, at(NOON + 1))
        assert sites[0].of(at(NOON + 1)).granted == 28


async def test_limit_is_raised_and_lowered_in_every_open_period() -> None:
    async with site_server(wall_clock=WallClock()) as harness:
        create(harness, 10, "hour")
        (web,) = await connected(harness, "web")
        for period in (NOON, NOON + 1):
            await web.take(1, at(period))
        harness.server.budgets.configure("tokens", {"limit": 2})
        assert used(harness) == (2, 0, 3)
        web.connection.received.clear()
        await harness.server.flush()
        assert {quota.budget.period for quota in web.quotas if quota.reply} == {NOON, NOON + 1}


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
