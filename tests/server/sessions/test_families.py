"""Families at the site server: joins, restarts, retirement, deletion, and what is refused."""

import asyncio

import pytest

from countless.core.answer import State
from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.family.rule import LABELS, FamilyRule
from countless.core.family.site import LABEL_CAP
from countless.errors import InvalidParameter, ProtocolError
from countless.server.http.answers.sums import answer_changes
from countless.server.kinds.families import MAX_FAMILIES_PER_SITE
from countless.server.settings import Config
from countless.server.storage.memory_store import MemoryStore
from countless.wire.budgets import BudgetLeave
from countless.wire.families import (
    FamilyJoin,
    FamilyLabels,
    FamilyLeave,
    FamilyLeaveAck,
    FamilyRejected,
    FamilyReport,
    FamilyResend,
    FamilySteps,
    FamilySync,
    KnownLabels,
)
from countless.wire.frames import VERSION, CounterRejected, Hello, IncarnationRetired, Join
from countless.wire.keys import FAMILY, Key
from support.saved import load_families
from support.service import TIMEOUT_S
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.spender import first_ask

JOIN = FamilyJoin("pages", LABELS, 0.1, 0.0, 0, 1, 1, 0, 0)
VALUES = FamilyJoin("ms", "values", 0.1, 0.01, 0, 1, 1, 0, 0)
NAMED = FamilyLabels("pages", ('{p="a"}', '{p="b"}'))


def known(harness: SiteServerHarness, name: str = "pages") -> dict[str, int]:
    return dict(harness.server.families.by_name[name].coordinator.known)


async def test_report_is_counted_once_and_survives_a_restart() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        web = await harness.connect("web")
        await harness.send(*web, JOIN, NAMED, FamilyReport("pages", 0, 8, (1, 5, 0, 3)))
        await harness.send(*web, FamilyReport("pages", 0, 8, (1, 5)))
        assert known(harness) == {'{p="a"}': 5, "": 3}
    async with site_server(store) as harness:
        family = harness.server.families.by_name["pages"]
        assert (known(harness), family.coordinator.state) == ({'{p="a"}': 5, "": 3}, State.LEARNING)
        web = await harness.connect("web")
        assert FamilyResend not in map(type, await harness.send(*web, JOIN._replace(total=8, reported=8)))
        assert FamilyResend in map(type, await harness.send(*web, FamilySync("pages", 0, 1, 1, 9, 9)))
        await harness.send(*web, FamilyLabels("pages", ('{p="b"}',)), FamilyReport("pages", 0, 9, (1, 1)))
        assert (known(harness), family.published_answer.lower) == ({'{p="a"}': 5, "": 3, '{p="b"}': 1}, 9)


async def test_readers_see_labels_only_once_they_are_saved() -> None:
    store = MemoryStore()
    async with site_server(store) as harness:
        session, connection = await harness.connect("web")
        harness.server.on_frame(session, connection, [JOIN, NAMED, FamilyReport("pages", 0, 5, (1, 5))], 10)
        family = harness.server.families.by_name["pages"]
        assert (known(harness), load_families(store)) == ({'{p="a"}': 5}, {})
        assert (family.published.counts, family.published.top(0.5).labels, family.published_answer.lower) == ({}, (), 0)
        await harness.server.flush()
        assert load_families(store)["pages"].labels == family.published.counts == {'{p="a"}': 5}
        assert [each[1:] for each in family.published.top(0.5).labels] == [(5, 5, 5)]


async def test_watch_of_a_label_sees_a_report_that_does_not_change_the_total() -> None:
    async with site_server() as harness:
        web = await harness.connect("web")
        await harness.send(*web, JOIN, NAMED, FamilyReport("pages", 0, 5, (1, 5)))
        answers = answer_changes(harness.server, 'pages{p="a"}')
        assert (await anext(answers)).estimate == 5
        following = asyncio.ensure_future(anext(answers))
        await harness.send(*web, FamilySync("pages", 0, 1, 1, 8, 8))  # the total is known before the label
        await harness.send(*web, FamilyReport("pages", 0, 8, (1, 8)))
        assert (await asyncio.wait_for(following, TIMEOUT_S)).estimate == 8


async def test_site_that_left_is_acknowledged_again_and_one_whose_report_was_lost_stays() -> None:
    async with site_server() as harness:
        web = await harness.connect("web")
        leave = FamilyLeave("pages", 0, 1, 1, 5, 5)
        asked = await harness.send(*web, JOIN, NAMED, leave)
        assert {FamilyResend, FamilyLeaveAck} & {*map(type, asked)} == {FamilyResend}  # all of them are equal tuples
        left = await harness.send(*web, FamilyReport("pages", 0, 5, (1, 5)), leave)
        assert isinstance(left[-1], FamilyLeaveAck)
        assert [*map(type, await harness.send(*web, leave))] == [FamilyLeaveAck]
        assert harness.server.families.by_name["pages"].published_answer[:3] == (5, 5, 5)
        harness.server.on_disconnect(*web)
        again = FakeConnection()
        assert await harness.server.on_hello(again, Hello(VERSION, "web", 1)) is None
        assert again.received == [KnownLabels("pages", 0, True, ()), IncarnationRetired(())]


async def test_retired_incarnation_is_told_what_is_known_of_each_label() -> None:
    async with site_server(silent_after=1.0) as harness:
        web = await harness.connect("web")
        await harness.send(*web, JOIN, NAMED, FamilyReport("pages", 0, 8, (1, 5, 0, 2)))
        harness.server.on_disconnect(*web)
        await harness.advance(2.0)
        assert harness.server.families.by_name["pages"].coordinator.state is State.DEGRADED
        await harness.connect("web", 2)
        await harness.server.flush()
        assert known(harness) == {'{p="a"}': 5, "": 2}
        returning = FakeConnection()
        assert await harness.server.on_hello(returning, Hello(VERSION, "web", 1)) is None
        assert returning.received == [KnownLabels("pages", 8, False, (("", 2), ('{p="a"}', 5))), IncarnationRetired(())]


async def test_smallest_epsilon_of_all_sites_is_in_force() -> None:
    async with site_server() as harness:
        web, app = await harness.connect("web"), await harness.connect("app")
        sent = await harness.send(*web, JOIN, NAMED, FamilyReport("pages", 0, 10_000, (1, 10_000)))
        steps = [item for item in sent if isinstance(item, FamilySteps)][-1]
        assert steps.label_step == 751
        await harness.send(*web, FamilySync("pages", steps.round, 751, steps.total_step, 10_000, 10_000))
        await harness.send(*app, JOIN._replace(epsilon=0.01))
        assert harness.server.families.by_name["pages"].spec == FamilyRule(LABELS, 0.01)
        lowered = web[1].received[-1]
        assert isinstance(lowered, FamilySteps)
        assert (lowered.confirm, lowered.label_step < 76) == (True, True)
        await harness.send(*app, JOIN._replace(epsilon=0.3))
        assert harness.server.families.by_name["pages"].spec.epsilon == 0.01


async def test_names_and_kinds_that_do_not_fit_are_rejected_and_change_nothing() -> None:
    async with site_server(max_counters=3) as harness:
        session, connection = await harness.connect("web")
        harness.server.create("hits", Config())
        await harness.send(session, connection, JOIN, VALUES)
        for join, reason in {
            JOIN._replace(family="hits"): "there is a counter of this name",
            JOIN._replace(family='hits{a="b"}'): "a name without labels and windows",
            JOIN._replace(family="other", epsilon=float("nan")): "epsilon must be a number",
            JOIN._replace(family="other", kind="ranks"): "kind must be labels or values",
            JOIN._replace(family="ms"): "is a distribution of accuracy 0.01",
            VALUES._replace(family="pages"): "is a counter with labels",
            VALUES._replace(accuracy=0.02): "is a distribution of accuracy 0.01",
        }.items():
            (rejected,) = await harness.send(session, connection, join)
            assert isinstance(rejected, FamilyRejected)
            assert reason in rejected.reason
        assert isinstance((await harness.send(session, connection, Join('pages{a="b"}', 0, 1)))[0], CounterRejected)
        with pytest.raises(InvalidParameter, match="'pages' is a family"):
            harness.server.create("pages", Config())
        assert set(harness.server.families.by_name) == {"pages", "ms"}
        await harness.send(session, connection, JOIN._replace(family="more"))
        (rejected,) = await harness.send(session, connection, JOIN._replace(family="too many"))
        assert isinstance(rejected, FamilyRejected)


@pytest.mark.parametrize(
    "items",
    [
        [FamilyReport("pages", 0, 1, (1, 1))],
        [JOIN, FamilyReport("pages", 0, 1, (1, 1))],
        [JOIN, NAMED, FamilyReport("pages", 0, 1, (1,))],
        [JOIN, NAMED, FamilyReport("pages", 3, 1, (1, 1))],
        [JOIN._replace(label_step=0)],
        [JOIN, FamilySync("pages", 0, 1, 0, 1, 1)],
        [VALUES, FamilyLabels("ms", ("fast",))],
        [VALUES, FamilyLabels("ms", ("123456789",))],
        [JOIN, *[FamilyLabels("pages", tuple(str(n) for n in range(1000)))] * (LABEL_CAP // 1000), NAMED],
    ],
)
async def test_impossible_messages_end_the_connection_and_change_nothing(items: list[FamilyJoin]) -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("web")
        with pytest.raises(ProtocolError):
            harness.server.on_frame(session, connection, [*items], 10)
        assert not any(each.coordinator.known for each in harness.server.families.by_name.values())


async def test_site_can_have_so_many_families_only() -> None:
    async with site_server(max_counters=2 * MAX_FAMILIES_PER_SITE) as harness:
        session, connection = await harness.connect("web")
        joins = [JOIN._replace(family=f"f-{number}") for number in range(MAX_FAMILIES_PER_SITE + 1)]
        *_, rejected = await harness.send(session, connection, *joins)
        assert isinstance(rejected, FamilyRejected)
        assert len(harness.server.families.by_name) == MAX_FAMILIES_PER_SITE


async def test_session_with_a_family_stays_when_its_budget_is_handed_in() -> None:
    """It is awaited, and marked when it times out: it must not be forgotten because it has no counter."""
    async with site_server() as harness:
        harness.server.budgets.create("tokens", BudgetRule(10, slack=0))
        session, connection = await harness.connect("a", 1)
        join = FamilyJoin("pages", "labels", 0.1, 0.0, 0, 1, 1, 0, 0)
        await harness.send(session, connection, join, first_ask("tokens", 5))
        harness.server.on_disconnect(session, connection)
        other, its_connection = await harness.connect("a", 2)
        await harness.send(other, its_connection, BudgetLeave(BudgetId("tokens"), 1, 0))
        assert (list(session.members), session.site_id in harness.server.sessions) == ([Key(FAMILY, "pages")], True)
