"""Rolling budgets at the site server: until when the units of sites that left or were lost count."""

from countless.core.budget.messages import Ask, BudgetId, Exhausted, Grant, Recall
from countless.core.budget.rule import BudgetRule
from countless.server.sessions.session_table import Session
from countless.server.storage.memory_store import MemoryStore
from countless.wire.frames import BudgetLeave, BudgetLeaveAck, BudgetReset, DownItem, UpItem
from support.saved import load_budgets
from support.site_server import FakeConnection, SiteServerHarness, site_server

LOGINS = BudgetId("logins")
WINDOW_S = 100.0
LEASE_S = WINDOW_S
PANE_S = WINDOW_S / 20


def ask(seq: int, want: int, *, held: int = 0, limit: int = 0, round: int = 0) -> Ask:
    return Ask(LOGINS, round, seq, 0, held, limit, want)


def create(harness: SiteServerHarness, on_loss: str = "charge") -> None:
    harness.server.budgets.create("logins", BudgetRule(10, slack=0, rolling=WINDOW_S, on_loss=on_loss))


def charged(harness: SiteServerHarness) -> int:
    return harness.server.budgets.get("logins").usage.upper


Connected = tuple[Session, FakeConnection]


async def send(harness: SiteServerHarness, site: Connected, *items: UpItem) -> list[DownItem]:
    received = await harness.send(*site, *items)
    return [item for item in received if isinstance(item, Grant | Recall | Exhausted | BudgetLeaveAck | BudgetReset)]


async def lose(harness: SiteServerHarness, site: Connected) -> None:
    harness.server.on_disconnect(*site)
    await harness.advance(0)


async def pass_time(harness: SiteServerHarness, seconds: float, *connected: Connected) -> None:
    """In steps, in each of which these sites send a frame."""
    for _ in range(int(seconds)):
        for site in connected:
            harness.server.on_frame(*site, [], 0)
        await harness.advance(1.0)


async def test_units_that_were_handed_in_count_for_another_window() -> None:
    async with site_server() as harness:
        create(harness)
        web = await harness.connect("web")
        assert await send(harness, web, ask(1, 10)) == [Grant(LOGINS, 0, 10)]
        assert await send(harness, web, BudgetLeave(LOGINS, 1, 6)) == [BudgetLeaveAck(LOGINS, 1)]
        assert charged(harness) == 6
        await pass_time(harness, WINDOW_S, web)
        assert charged(harness) == 6
        await pass_time(harness, PANE_S + 1, web)
        assert charged(harness) == 0


async def test_limit_of_a_lost_site_counts_until_a_window_after_its_lease() -> None:
    """Also if no other process has its name, and long before `forget_after`: the session is not retired."""
    async with site_server(silent_after=10) as harness:
        create(harness)
        web = await harness.connect("web-1")
        await send(harness, web, ask(1, 7))
        await lose(harness, web)
        await pass_time(harness, WINDOW_S + LEASE_S - 1)
        assert charged(harness) == 7
        await pass_time(harness, 3)
        assert (charged(harness), len(harness.server.sessions)) == (0, 0)
        again = await harness.connect("web-1")
        assert await send(harness, again, ask(9, 1, held=7, limit=7)) == [BudgetReset(LOGINS)]
        assert await send(harness, again, ask(10, 10)) == [Grant(LOGINS, 0, 10)]


async def test_limit_of_a_retired_session_counts_as_long() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness)
        web = await harness.connect("web", 1)
        await send(harness, web, ask(1, 7))
        await lose(harness, web)
        await pass_time(harness, 20)
        successor = await harness.connect("web", 2)
        assert charged(harness) == 7
        assert await send(harness, successor, ask(1, 4)) == [Exhausted(LOGINS, 0, 4)]
        # The retired process comes back: it must forget what it has before it can get anything.
        back = await harness.connect("web", 1)
        assert await send(harness, back, ask(5, 1, held=3, limit=7)) == [BudgetReset(LOGINS)]
        assert await send(harness, back, BudgetLeave(LOGINS, 1, 3)) == [BudgetLeaveAck(LOGINS, 1)]
        await pass_time(harness, WINDOW_S + LEASE_S - 22, successor)
        assert charged(harness) == 7
        await pass_time(harness, PANE_S + 3, successor)
        assert charged(harness) == 0
        assert await send(harness, successor, ask(2, 10, round=1)) == [Grant(LOGINS, 1, 10)]


async def test_free_charges_what_a_lost_site_has_reported() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness, on_loss="free")
        web = await harness.connect("web", 1)
        await send(harness, web, ask(1, 7), ask(2, 0, held=2, limit=7))
        await lose(harness, web)
        await pass_time(harness, 20)
        await harness.connect("web", 2)
        assert charged(harness) == 2


async def test_site_that_is_back_in_time_goes_on() -> None:
    async with site_server(silent_after=10) as harness:
        create(harness)
        web = await harness.connect("web")
        await send(harness, web, ask(1, 7))
        await lose(harness, web)
        await pass_time(harness, WINDOW_S + LEASE_S - 20)
        back = await harness.connect("web")
        assert await send(harness, back, ask(2, 0, held=5, limit=7)) == []
        await pass_time(harness, WINDOW_S + LEASE_S, back)
        assert charged(harness) == 7


async def test_restarted_coordinator_counts_what_was_handed_in_for_a_lease_and_a_window() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness)
        web = await harness.connect("web")
        await send(harness, web, ask(1, 10), BudgetLeave(LOGINS, 1, 6))
        await pass_time(harness, WINDOW_S - 1, web)
    async with site_server(store) as harness:
        await pass_time(harness, WINDOW_S + LEASE_S)
        assert charged(harness) == 6
        await pass_time(harness, PANE_S + 1)
        assert charged(harness) == 0
    async with site_server(store) as harness:
        assert charged(harness) == 0


async def test_units_that_come_back_are_told_to_a_site_that_was_refused() -> None:
    async with site_server() as harness:
        create(harness)
        web, other = await harness.connect("web"), await harness.connect("other")
        await send(harness, web, ask(1, 10), BudgetLeave(LOGINS, 1, 10))
        assert await send(harness, other, ask(1, 1)) == [Exhausted(LOGINS, 0, 1)]
        other[1].received.clear()
        await pass_time(harness, WINDOW_S + PANE_S + 1, web, other)
        assert other[1].received == [Recall(LOGINS, 1)]
        assert await send(harness, other, ask(2, 1, round=1)) == [Grant(LOGINS, 1, 3)]


async def test_reset_starts_with_new_accounts() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        create(harness)
        web, other = await harness.connect("web"), await harness.connect("other")
        await send(harness, web, ask(1, 5), BudgetLeave(LOGINS, 1, 5))
        await send(harness, other, ask(1, 5))
        other[1].received.clear()
        harness.server.budgets.reset("logins")
        await harness.server.flush()
        assert (other[1].received, charged(harness)) == ([BudgetReset(LOGINS)], 0)
        assert load_budgets(store)["logins"].periods == {}
        assert await send(harness, other, ask(2, 10)) == [Grant(LOGINS, 0, 10)]
        await pass_time(harness, 2 * WINDOW_S, web, other)
        assert charged(harness) == 10
    assert charged(harness) == sum(site.limit for site in load_budgets(store)["logins"].periods[0].sites.values())


async def test_name_that_follows_a_rolling_template_is_dropped_when_its_units_came_back() -> None:
    async with site_server() as harness:
        harness.server.budgets.create("keys/*", BudgetRule(10, rolling=WINDOW_S))
        web = await harness.connect("web")
        key = BudgetId("keys/a")
        await send(harness, web, Ask(key, 0, 1, 0, 0, 0, 1), BudgetLeave(key, 1, 3))
        assert "keys/a" in harness.server.budgets.by_name
        await pass_time(harness, WINDOW_S + PANE_S + 1, web)
        assert "keys/a" not in harness.server.budgets.by_name
