"""Rolling budgets at the site server: until when units count that sites have handed over, or in, or that were lost."""

import pytest

from countless.core.budget.messages import BudgetId, Quota
from countless.core.budget.rule import BudgetRule
from countless.server.kinds.rolling_units import RollingUnits
from countless.server.storage.memory_store import MemoryStore
from countless.wire.budgets import BudgetLeave, BudgetLeaveAck
from countless.wire.frames import Sync, SyncAck
from support.saved import load_budgets
from support.site_server import SiteServerHarness, site_server
from support.spender import Spender

LOGINS = BudgetId("logins")
WINDOW_S = 100.0
LEASE_S = WINDOW_S
PANE_S = WINDOW_S / 20


def create(harness: SiteServerHarness, on_loss: str = "charge") -> None:
    harness.server.budgets.create("logins", BudgetRule(10, slack=0, rolling=WINDOW_S, on_loss=on_loss))


def charged(harness: SiteServerHarness) -> int:
    return harness.server.budgets.get("logins").usage.upper


async def connect(harness: SiteServerHarness, name: str, incarnation: int = 1) -> Spender:
    return await Spender(harness, name, incarnation, rolling=WINDOW_S).connect()


async def lose(harness: SiteServerHarness, site: Spender) -> None:
    site.disconnect()
    await harness.advance(0)


async def pass_time(harness: SiteServerHarness, seconds: float, *connected: Spender) -> None:
    """In steps, in each of which these sites send a frame."""
    for _ in range(int(seconds)):
        for site in connected:
            harness.server.on_frame(site.session, site.connection, [], 0)
        await harness.advance(1.0)


async def test_units_that_were_handed_in_count_for_another_window() -> None:
    async with site_server() as harness:
        create(harness)
        web = await connect(harness, "web")
        assert await web.take(10, LOGINS) == "allowed"
        assert await web.send(BudgetLeave(LOGINS, 1, 6)) == [BudgetLeaveAck(LOGINS, 1)]
        assert charged(harness) == 6
        await pass_time(harness, WINDOW_S, web)
        assert charged(harness) == 6
        await pass_time(harness, PANE_S + 1, web)
        assert charged(harness) == 0


async def test_units_that_were_handed_over_come_back_without_a_message() -> None:
    async with site_server() as harness:
        create(harness)
        web, other = await connect(harness, "web"), await connect(harness, "other")
        assert await web.take(10, LOGINS) == "allowed"
        await pass_time(harness, 20, web, other)
        assert await web.take(1, LOGINS) == "exhausted"  # with this it has handed over what it took 20 s ago
        assert (web.of(LOGINS).limit, charged(harness)) == (0, 10)
        harness.server.on_disconnect(web.session, web.connection)
        await pass_time(harness, WINDOW_S - 20, other)
        assert await other.take(10, LOGINS) == "exhausted"
        await pass_time(harness, PANE_S + 1, other)
        await other.exchange()
        assert await other.take(10, LOGINS) == "allowed"


async def test_handed_over_units_that_a_killed_coordinator_has_saved_count_as_long_as_before() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness)
        web = await connect(harness, "web")
        assert [await web.take(6, LOGINS), await web.take(5, LOGINS)] == ["allowed", "exhausted"]
        (saved,) = load_budgets(store)["logins"].periods.values()
        assert (saved.fields.gone, saved.fields.panes) == (6, ((WINDOW_S + PANE_S, 6),))
    async with site_server(store) as harness:
        assert charged(harness) == 6
        other = await connect(harness, "other")
        assert await other.take(5, LOGINS) == "exhausted"
        await pass_time(harness, WINDOW_S + 2 * PANE_S + 1, other)
        await other.exchange()
        assert await other.take(10, LOGINS) == "allowed"


async def test_limit_of_a_lost_site_counts_until_a_window_after_its_lease() -> None:
    """Also if no other process has its name, and long before `forget_after`: the session is not retired."""
    async with site_server(silent_after=10) as harness:
        create(harness)
        web = await connect(harness, "web-1")
        await web.take(7, LOGINS)
        await lose(harness, web)
        await pass_time(harness, WINDOW_S + LEASE_S - 1)
        assert charged(harness) == 7
        await pass_time(harness, 3)
        assert (charged(harness), len(harness.server.sessions)) == (0, 0)
        await web.connect()
        assert (web.of(LOGINS).since, web.of(LOGINS).granted) == (2, 0)  # it has begun again
        assert await web.take(10, LOGINS) == "allowed"


async def test_limit_of_a_lost_site_that_is_free_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RollingUnits, "free_at", lambda self, last_seen: last_seen)
    with pytest.raises(AssertionError):
        await test_limit_of_a_lost_site_counts_until_a_window_after_its_lease()


async def test_limit_of_a_retired_session_counts_as_long() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness)
        web = await connect(harness, "web", 1)
        await web.take(7, LOGINS)
        await lose(harness, web)
        await pass_time(harness, 20)
        successor = await connect(harness, "web", 2)
        assert charged(harness) == 7
        assert await successor.take(4, LOGINS) == "exhausted"
        await web.connect()  # the retired process comes back, with nothing
        assert await web.take(4, LOGINS) == "exhausted"
        assert await web.send(BudgetLeave(LOGINS, 1, 0)) == [BudgetLeaveAck(LOGINS, 1)]
        await pass_time(harness, WINDOW_S + LEASE_S - 22, successor)
        assert charged(harness) == 7
        await pass_time(harness, PANE_S + 3, successor)
        assert charged(harness) == 0
        await successor.exchange()
        assert await successor.take(10, LOGINS) == "allowed"


async def test_free_charges_what_a_lost_site_has_reported() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness, on_loss="free")
        web = await connect(harness, "web", 1)
        assert [await web.take(2, LOGINS), await web.take(4, LOGINS)] == 2 * ["allowed"]
        await lose(harness, web)
        await pass_time(harness, 20)
        await connect(harness, "web", 2)
        assert charged(harness) == 2


async def test_site_that_is_back_in_time_goes_on() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness)
        web = await connect(harness, "web")
        await web.take(1, LOGINS)
        await lose(harness, web)
        await pass_time(harness, WINDOW_S + LEASE_S - 20)
        await web.connect()
        assert web.of(LOGINS).room == 3
        await pass_time(harness, WINDOW_S + LEASE_S, web)
        assert charged(harness) == 3


async def test_restarted_coordinator_counts_what_was_handed_in_as_long_as_before_and_two_panes() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness)
        web = await connect(harness, "web")
        await web.take(10, LOGINS)
        await web.send(BudgetLeave(LOGINS, 1, 6))
        await pass_time(harness, WINDOW_S - 1, web)
    async with site_server(store) as harness:
        await pass_time(harness, 1)
        assert charged(harness) == 6
        await pass_time(harness, 3 * PANE_S)
        assert charged(harness) == 0
    async with site_server(store) as harness:
        assert charged(harness) == 0


async def test_units_that_come_back_are_told_to_a_site_that_was_refused() -> None:
    async with site_server() as harness:
        create(harness)
        web, other = await connect(harness, "web"), await connect(harness, "other")
        await web.take(10, LOGINS)
        await web.send(BudgetLeave(LOGINS, 1, 10))
        assert await other.take(1, LOGINS) == "exhausted"
        await other.send()
        await pass_time(harness, WINDOW_S + PANE_S + 1, web, other)
        assert other.received == [Quota(LOGINS, since=1, number=2, granted=0)]
        await other.exchange()
        assert await other.take(1, LOGINS) == "allowed"


async def test_reset_starts_with_new_accounts() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness)
        web, other, refused = [await connect(harness, name) for name in ("web", "other", "refused")]
        await web.take(5, LOGINS)
        await web.send(BudgetLeave(LOGINS, 1, 5))
        assert [await other.take(5, LOGINS), await refused.take(1, LOGINS)] == ["allowed", "exhausted"]
        harness.server.budgets.reset("logins")
        await harness.server.flush()
        assert charged(harness) == 0
        assert load_budgets(store)["logins"].periods == {}
        for site in (other, refused):
            await site.exchange()
            assert (site.of(LOGINS).used, site.of(LOGINS).refuse_from) == (0, None)
        assert await other.take(10, LOGINS) == "allowed"
        await pass_time(harness, 2 * WINDOW_S, web, other)
        assert charged(harness) == 10
    assert charged(harness) == sum(site.limit for site in load_budgets(store)["logins"].periods[0].sites.values())


async def test_each_sync_is_acknowledged_by_itself() -> None:
    """A lease lasts from the Sync that was answered last: sites count the answers."""
    async with site_server() as harness:
        web = await connect(harness, "web")
        assert await web.send(Sync(1), Sync(1), Sync(2)) == [SyncAck(1), SyncAck(1), SyncAck(2)]


async def test_name_that_follows_a_rolling_template_is_dropped_when_its_units_came_back() -> None:
    async with site_server() as harness:
        harness.server.budgets.create("keys/*", BudgetRule(10, rolling=WINDOW_S))
        web = await connect(harness, "web")
        key = BudgetId("keys/a")
        await web.take(1, key)
        await web.send(BudgetLeave(key, 1, 3))
        assert "keys/a" in harness.server.budgets.by_name
        await pass_time(harness, WINDOW_S + PANE_S + 1, web)
        assert "keys/a" not in harness.server.budgets.by_name
