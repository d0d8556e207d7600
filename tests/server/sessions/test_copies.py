"""A session of which another process delivers something, from a copy of what the process keeps."""

import logging

import pytest

from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.budget.rule import BudgetRule
from countless.core.messages import Report
from countless.server.kinds.counter import WindowedCounter
from countless.server.storage.memory_store import MemoryStore
from countless.wire.budgets import BudgetLeave, BudgetLeaveAck
from countless.wire.families import FamilyJoin, FamilyLabels, FamilyLeave, FamilyLeaveAck, FamilyReport, KnownLabels
from countless.wire.frames import (
    VERSION,
    DownItem,
    Hello,
    IncarnationRetired,
    Inherited,
    Join,
    Leave,
    LeaveAck,
    Sync,
    UpItem,
)
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.spender import first_ask

TOKENS = BudgetId("tokens", 0)
HOUR = "requests@hour:490123"


async def deliver(harness: SiteServerHarness, *items: UpItem, site: str = "web") -> list[DownItem]:
    """As a process that has found a copy."""
    session, connection = await harness.connect(site)
    received = await harness.send(session, connection, Inherited(), *items)
    harness.server.on_disconnect(session, connection)
    return received


async def hello(harness: SiteServerHarness, site: str = "web") -> list[DownItem]:
    connection = FakeConnection()
    assert await harness.server.on_hello(connection, Hello(VERSION, site, 1)) is None
    return connection.received


async def test_process_that_comes_back_after_a_copy_was_delivered_is_told_what_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with site_server() as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 5), Join("errors", 0, 2))
        assert LeaveAck("hits") in await deliver(harness, Join("hits", 0, 7), Leave("hits", 0, 7))
        assert connection.close_reason is not None
        assert await hello(harness) == [IncarnationRetired((("errors", 2), ("hits", 7)))]
        assert harness.server.replaced == {"connection": 1, "session": 1}
        assert len(caplog.messages) == 2
        assert "site='web'" in caplog.messages[1]


async def test_process_that_comes_back_in_the_middle_of_a_delivery_ends_it() -> None:
    async with site_server() as harness:
        await harness.connect("web")
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Inherited(), Join("hits", 0, 7), Join("errors", 0, 2))
        await harness.send(session, connection, Leave("hits", 0, 7))
        assert await hello(harness) == [IncarnationRetired((("errors", 2), ("hits", 7)))]
        assert connection.close_reason is not None
        assert await harness.send(session, connection, Leave("errors", 0, 9)) == []


async def test_copy_leaves_windows_with_their_counts_and_only_its_own() -> None:
    """No window has lost a site: the process is there, and delivers the rest."""
    now = 490_123 * 3600.0
    async with site_server(wall_clock=lambda: now) as harness:
        session, connection = await harness.connect("web")
        later = HOUR.replace("490123", "490124")
        await harness.send(session, connection, Join(HOUR, 0, 5), Join(later, 0, 3), Sync(1))
        assert LeaveAck(HOUR) in await deliver(harness, Join(HOUR, 0, 6), Leave(HOUR, 0, 6), Sync(1))
        assert await hello(harness) == [IncarnationRetired(((HOUR, 6), (later, 3)))]
        now += 5 * 3600.0
        await harness.advance(60)
        counter = harness.server.counters["requests"]
        assert isinstance(counter, WindowedCounter)
        assert "incomplete" not in {str(each.state) for each in counter.youngest()}


async def test_copy_leaves_a_family_with_the_counts_of_its_labels() -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("web")
        join = FamilyJoin("pages", "labels", 0.01, 0.0, 0, 1, 1, 5, 0)
        report = FamilyLabels("pages", ('{p="a"}',)), FamilyReport("pages", 0, 5, (1, 4, 0, 1))
        await harness.send(session, connection, join, *report)
        leave = FamilyLeave("pages", 0, 1, 1, 5, 5)
        assert FamilyLeaveAck("pages") in await deliver(harness, join, *report, leave)
        known = KnownLabels("pages", 5, False, (("", 1), ('{p="a"}', 4)))
        assert await hello(harness) == [known, IncarnationRetired(())]


async def test_copy_is_remembered_across_a_restart() -> None:
    """The session stays, because it is a member of another counter."""
    store = MemoryStore()
    async with site_server(store) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 5), Join("errors", 0, 2))
        await deliver(harness, Join("hits", 0, 7), Leave("hits", 0, 7))
    async with site_server(store) as harness:
        assert await hello(harness) == [IncarnationRetired((("errors", 2), ("hits", 7)))]


async def test_process_that_leaves_by_itself_keeps_its_session() -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 5), Join("errors", 0, 2), Leave("hits", 0, 7))
        session, connection = await harness.connect("web")
        received = await harness.send(session, connection, Report("errors", 0, 3, 1), Leave("hits", 0, 7))
        assert received[-1] == LeaveAck("hits")
        assert harness.server.replaced["session"] == 0


async def spending(harness: SiteServerHarness, limit: int, spent: int) -> None:
    """A site that was granted units, and has reported these as spent."""
    harness.server.budgets.create("tokens", BudgetRule(limit, slack=0))
    session, connection = await harness.connect("web")
    received = await harness.send(session, connection, first_ask("tokens", limit))
    (granted,) = [item.granted for item in received if isinstance(item, Quota)]
    assert granted == limit
    await harness.send(session, connection, Ask(TOKENS, 2, 1, 1, limit, 0, spent, 0, keep=True))


async def test_hand_in_below_what_was_reported_frees_nothing_until_the_process_hands_in_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site_server() as harness:
        await spending(harness, 1000, 840)
        with caplog.at_level(logging.WARNING):
            assert BudgetLeaveAck(TOKENS, 1) in await deliver(harness, BudgetLeave(TOKENS, 1, 1))
        assert "spent=1 reported=840" in caplog.text
        usage = harness.server.budgets.get("tokens").usage
        assert (usage.lower, usage.upper) == (840, 1000)
        assert await hello(harness) == [IncarnationRetired(())]
        session, connection = await harness.connect("web", 2)
        assert BudgetLeaveAck(TOKENS, 1) in await harness.send(session, connection, BudgetLeave(TOKENS, 1, 900))
        usage = harness.server.budgets.get("tokens").usage
        assert (usage.lower, usage.upper) == (900, 900)


async def test_after_a_restore_budgets_wait_for_what_a_renewed_session_hands_in() -> None:
    """Its units since the copy of the state was made are known to no other."""
    store = MemoryStore()
    async with site_server(store) as harness:
        await spending(harness, 1000, 1)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 5))
    async with site_server(store, after_restore=True) as harness:
        wait = harness.server.settings.wait_after_restore
        assert wait is not None
        await deliver(harness, Join("hits", 0, 5), Leave("hits", 0, 5))
        await harness.advance(wait - 1)
        assert await hello(harness) == [IncarnationRetired((("hits", 5),))]
        await harness.advance(wait - 1)
        assert harness.server.budgets.restoring
        await harness.advance(2)
        assert not harness.server.budgets.restoring
