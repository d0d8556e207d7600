"""Templates: a rule `keys/*` that every name below `keys/` follows from its first use until it is not used any more."""

from collections import Counter as Tally
from collections.abc import Sequence
from pathlib import Path

import pytest

from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.budget.rule import BudgetRule
from countless.errors import InvalidParameter, UnknownName
from countless.randomness import SeededRandom
from countless.server.sessions.session_table import Session
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.budgets import BudgetLeave, BudgetRejected, SetBudgetRule
from countless.wire.frames import DownItem, UpItem
from countless.wire.keys import BUDGET
from support.saved import load_budgets
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.spender import Spender, first_ask

PER_MINUTE = BudgetRule(100, per="minute", slack=0)


class WallClock:
    """Seconds since 1970. `advance` lets the clock of the harness run with it."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0  # the beginning of a minute

    def __call__(self) -> float:
        return self.seconds

    @property
    def minute(self) -> int:
        calendar = PER_MINUTE.calendar
        assert calendar is not None
        return calendar.period_at(self.seconds)

    async def advance(self, harness: SiteServerHarness, seconds: float) -> None:
        self.seconds += seconds
        await harness.advance(seconds)


def ask(name: str, want: int = 1, period: int = 0) -> Ask:
    return first_ask(name, want, period)


async def connect(harness: SiteServerHarness, incarnation: int = 1) -> tuple[Session, FakeConnection]:
    """A session whose HelloAck has been received."""
    session, connection = await harness.connect("web", incarnation)
    await harness.server.flush()
    connection.received.clear()
    return session, connection


async def send(harness: SiteServerHarness, site: tuple[Session, FakeConnection], *items: UpItem) -> Sequence[DownItem]:
    """What is received except rules."""
    return [item for item in await harness.send(*site, *items) if not isinstance(item, SetBudgetRule)]


async def test_each_name_has_the_limit_of_its_template() -> None:
    async with site_server() as harness:
        harness.server.budgets.create("keys/*", BudgetRule(10, slack=0))
        web = await connect(harness)
        for name in ("keys/a", "keys/b/c", "keys/base64+/="):
            [rule, grant] = await harness.send(*web, ask(name, 10))
            assert isinstance(rule, SetBudgetRule)
            assert (rule.budget.name, rule.limit) == (name, 10)
            assert grant == Quota(BudgetId(name), since=1, number=1, granted=10)
        rejected = "there is no budget 'other/a'"
        assert await send(harness, web, ask("other/a")) == [BudgetRejected(BudgetId("other/a"), rejected)]
        [refusal] = await send(harness, web, ask("keys/*"))
        assert isinstance(refusal, BudgetRejected)
        assert "template" in refusal.reason


async def test_longest_prefix_and_a_budget_of_its_own_come_first() -> None:
    async with site_server() as harness:
        for name, limit in (("a/*", 10), ("a/b/*", 20), ("a/b/c", 30)):
            harness.server.budgets.create(name, BudgetRule(limit))
        for name, limit in (("a/x", 10), ("a/b", 10), ("a/b/x", 20), ("a/b/c", 30), ("a/b/c/d", 20)):
            assert harness.server.budgets.get(name).rule.limit == limit
        with pytest.raises(UnknownName):
            harness.server.budgets.get("b")


async def test_names_beyond_the_cap_are_rejected_until_others_are_not_used_any_more() -> None:
    wall = WallClock()
    async with site_server(wall_clock=wall, silent_after=80_000) as harness:
        harness.server.budgets.create("keys/*", BudgetRule(100, per="minute", slack=0, max_names=2))
        web, minute = await connect(harness), wall.minute
        for name in ("keys/a", "keys/b"):
            assert len(await send(harness, web, ask(name, period=minute))) == 1
        [refusal] = await send(harness, web, ask("keys/c", period=minute))
        assert refusal == BudgetRejected(
            BudgetId("keys/c", minute), "'keys/*' has as many names as it may have (max_names)"
        )
        await wall.advance(harness, 60)
        assert len(await send(harness, web, ask("keys/b", period=minute + 1))) == 1
        await wall.advance(harness, 60)
        await wall.advance(harness, 1)  # a minute after the end of the first minute it is closed
        assert sorted(harness.server.budgets.by_name) == ["keys/*", "keys/b"]
        assert isinstance((await send(harness, web, ask("keys/c", period=minute + 2)))[0], Quota)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_unused_names_leave_nothing_in_memory_and_on_disk(kind: str, tmp_path: Path) -> None:
    wall = WallClock()
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "state.db")
    async with site_server(store, wall_clock=wall, silent_after=80_000) as harness:
        harness.server.budgets.create("keys/*", PER_MINUTE)
        session, connection = await connect(harness)
        names = [f"keys/{number}" for number in range(50)]
        for name in names:
            await harness.send(session, connection, ask(name), ask(name, 5, wall.minute))
        assert sorted(load_budgets(store)) == sorted(["keys/*", *names])
        first = wall.minute
        for _ in range(3):
            await wall.advance(harness, 60)
        assert list(harness.server.budgets.by_name) == ["keys/*"]
        assert harness.server.budgets.templates.names_in_use == 0
        assert harness.server.budgets.get("keys/*").asks == 50  # the metric never falls
        assert (session.members, session.own, session.noted) == ({}, {BUDGET: set()}, set())
        saved = load_budgets(store)
        assert list(saved) == ["keys/*"]
        assert saved["keys/*"].periods == {}
        # A name that is used again begins after the periods that were closed, also if the clock goes back.
        wall.seconds -= 180
        [refusal] = await send(harness, (session, connection), ask("keys/1", period=first))
        assert isinstance(refusal, BudgetRejected)
        assert "closed" in refusal.reason


async def test_name_without_periods_is_dropped_only_if_nothing_of_it_was_spent() -> None:
    async with site_server() as harness:
        harness.server.budgets.create("tenant/*", BudgetRule(10, slack=0))
        web = await connect(harness)
        await harness.send(*web, ask("tenant/spent", 4), ask("tenant/unspent", 4))
        for name, spent in (("tenant/spent", 4), ("tenant/unspent", 0)):
            await harness.send(*web, BudgetLeave(BudgetId(name), 1, spent))
        await harness.advance(1)
        assert sorted(harness.server.budgets.by_name) == ["tenant/*", "tenant/spent"]
        assert harness.server.budgets.get("tenant/spent").usage.lower == 4


async def test_names_follow_their_template_after_a_restart() -> None:
    store, wall = MemoryStore(), WallClock()
    async with site_server(store, wall_clock=wall, silent_after=80_000) as harness:
        harness.server.budgets.create("keys/*", BudgetRule(100, per="minute", slack=0, max_names=2))
        web = await connect(harness)
        for name in ("keys/a", "keys/b"):
            await harness.send(*web, ask(name, period=wall.minute))
    async with site_server(store, wall_clock=wall, silent_after=80_000) as harness:
        web = await connect(harness, 2)
        [refusal] = await send(harness, web, ask("keys/c", period=wall.minute))
        assert isinstance(refusal, BudgetRejected)
        harness.server.budgets.configure("keys/*", {"limit": 50})
        assert harness.server.budgets.get("keys/a").rule.limit == 50
        harness.server.budgets.delete("keys/*")
        assert harness.server.budgets.by_name == {}
        await harness.server.flush()
        assert load_budgets(store) == {}


async def test_changed_template_changes_its_names_and_a_changed_name_follows_it_no_longer() -> None:
    async with site_server() as harness:
        budgets = harness.server.budgets
        budgets.create("keys/*", BudgetRule(10, slack=0))
        web = await connect(harness)
        await harness.send(*web, ask("keys/a", 10), ask("keys/b"))
        budgets.configure("keys/b", {"limit": 500})
        budgets.configure("keys/unused", {"limit": 600})
        assert budgets.get("keys/*").asks == budgets.get("keys/b").asks == 1
        await harness.server.flush()
        web[1].received.clear()
        budgets.configure("keys/*", {"limit": 20, "max_names": 1})
        await harness.server.flush()
        assert [item.limit for item in web[1].received if isinstance(item, SetBudgetRule)] == [20]
        limits = {name: budgets.get(name).rule.limit for name in ("keys/a", "keys/b", "keys/new", "keys/unused")}
        assert limits == {"keys/a": 20, "keys/b": 500, "keys/new": 20, "keys/unused": 600}
        more = Ask(BudgetId("keys/a"), 2, 1, 1, 10, 0, 10, 0, 10)
        assert await send(harness, web, more) == [Quota(BudgetId("keys/a"), since=1, number=2, granted=20)]
        budgets.delete("keys/*")
        assert sorted(budgets.by_name) == ["keys/b", "keys/unused"]


@pytest.mark.parametrize("seed", range(8))
async def test_limit_of_each_name_and_minute_holds_when_names_are_dropped_and_made_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the coordinator jumps, it is restarted, and sites ask for minutes near to it and far from it."""
    monkeypatch.setattr("countless.server.storage.commit.COMMIT_INTERVAL_S", 0.0)
    random, wall, store = SeededRandom(seed), WallClock(), MemoryStore()
    spent: Tally[BudgetId] = Tally()  # by the sites, which forget nothing
    made: Tally[str] = Tally()
    for incarnation in range(1, 4):
        async with site_server(store, wall_clock=wall, silent_after=80_000) as harness:
            if incarnation == 1:
                harness.server.budgets.create("keys/*", BudgetRule(5, per="minute", slack=0, max_names=2))
            sites = [await Spender(harness, "web", 10 * incarnation + number).connect() for number in range(2)]
            for _ in range(100):
                site = sites[random.randbelow(2)]
                budget = BudgetId(f"keys/{random.randbelow(3)}", wall.minute - random.randbelow(3))
                before = set(harness.server.budgets.by_name)
                await site.take(1 + random.randbelow(3), budget)
                await site.send(site.of(budget).resend())
                await site.exchange()
                made.update(set(harness.server.budgets.by_name) - before)
                while site.of(budget).room:
                    await site.take(1, budget)
                await wall.advance(harness, random.randbelow(40))
                wall.seconds += (random.randbelow(5) == 0) * (random.randbelow(600) - 300)
            spent += sites[0].admitted + sites[1].admitted
    assert max(spent.values()) == 5, f"seed {seed}"
    assert max(made.values()) > 3  # names were dropped and made again


async def test_names_that_one_token_invents_leave_room_for_others() -> None:
    async with site_server(max_share=0.5) as harness:
        budgets = harness.server.budgets
        budgets.create("keys/*", BudgetRule(5, slack=0, max_names=4))
        sites = {}
        for number, peer in enumerate(("token 1", "token 1", "token 2", "")):
            sites[number] = await connect(harness, number)
            sites[number][0].peer = peer

        async def refused(number: int, name: str) -> str:
            items = await send(harness, sites[number], ask(name))
            return "".join(
                item.reason for item in items if isinstance(item, BudgetRejected) and item.budget.name == name
            )

        assert await refused(0, "keys/a") == await refused(1, "keys/b") == ""
        for number in (0, 1):
            assert await refused(number, "keys/c") == (
                "'keys/*' has as many names as one token may use (max_share of max_names)"
            )
        assert await refused(1, "keys/a") == ""  # it is in use
        assert await refused(2, "keys/c") == await refused(2, "keys/a") == ""
        assert await refused(3, "keys/d") == ""
        assert "(max_names)" in await refused(3, "keys/e")
        budgets.delete("keys/d")
        budgets.delete("keys/a")
        budgets.configure("keys/b", {"limit": 9})  # it follows the template no longer
        assert [await refused(0, f"keys/{name}") for name in "fg"] == ["", ""]
        assert "max_share of max_names" in await refused(1, "keys/h")
        budgets.delete("keys/*")
        budgets.create("keys/*", BudgetRule(5, slack=0, max_names=2))
        assert await refused(0, "keys/i") == ""


@pytest.mark.parametrize("name", ["/*", "*", "a*", "a/*/b", "*/a", "a/*/*"])
async def test_star_elsewhere_in_a_name_is_refused(name: str) -> None:
    async with site_server() as harness:
        with pytest.raises(InvalidParameter, match="name must be a name without"):
            harness.server.budgets.create(name, BudgetRule(10))
        assert harness.server.budgets.by_name == {}


async def test_cap_is_for_templates_only_and_has_a_range() -> None:
    async with site_server() as harness:
        budgets = harness.server.budgets
        with pytest.raises(InvalidParameter, match="max_names can only be used for a name that ends with"):
            budgets.create("a", BudgetRule(10, max_names=5))
        budgets.create("a", BudgetRule(10))
        with pytest.raises(InvalidParameter, match="max_names can only be used for a name that ends with"):
            budgets.configure("a", {"max_names": 5})
        for cap in (0, -1, 1.5, 100_001):
            with pytest.raises(InvalidParameter, match="max_names must be an integer from 1 to 100000"):
                BudgetRule(10, max_names=cap)  # type: ignore[arg-type]
        assert budgets.create("b/*", BudgetRule(10)).rule.max_names == 10_000
