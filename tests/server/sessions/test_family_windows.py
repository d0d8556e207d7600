"""Windows of families at the site server: each is a family of its own, all of them together are the family."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from countless.core.answer import State
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter
from countless.server.http.answers.windows import window_answer
from countless.server.kinds.family import WindowedFamily
from countless.server.sessions.periodic import MAX_AHEAD
from countless.server.settings import Config
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import StateStore
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.families import (
    FamilyJoin,
    FamilyLabels,
    FamilyLeave,
    FamilyLeaveAck,
    FamilyRejected,
    FamilyReport,
    FamilySteps,
    KnownLabels,
)
from countless.wire.frames import VERSION, CounterRejected, Hello, IncarnationRetired, Join, KnownCounts
from support.hours import FIRST, HOUR, HourClock
from support.saved import load_families, load_rules
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.stores import PausedStore
from support.tombstones import shown

RULE = FamilyRule(LABELS, 0.1, windows=WindowRule("hour", keep=2))
KNOWN = IncarnationRetired | KnownCounts


@pytest.fixture
def clock() -> HourClock:
    return HourClock()


def name(window: int, series: str = "pages") -> str:
    return f"{series}@hour:{FIRST + window}"


def join(window: int, epsilon: float = 0.1) -> FamilyJoin:
    return FamilyJoin(name(window), LABELS, epsilon, 0.0, 0, 1, 1, 0, 0)


def counted(window: int, a: int, b: int = 0) -> list[FamilyJoin | FamilyLabels | FamilyReport]:
    report = FamilyReport(name(window), 0, a + b, (1, a, 2, b) if b else (1, a))
    return [join(window), FamilyLabels(name(window), ("{p=a}", "{p=b}")), report]


def leave(window: int, total: int) -> FamilyLeave:
    return FamilyLeave(name(window), 0, 1, 1, total, total)


def family(harness: SiteServerHarness) -> WindowedFamily:
    found = harness.server.families.by_name["pages"]
    assert isinstance(found, WindowedFamily)
    return found


def windows(harness: SiteServerHarness) -> list[tuple[int, float, str]]:
    return [(each.period - FIRST, each.lower, str(each.state)) for each in family(harness).youngest()]


def labels(harness: SiteServerHarness, first: int, last: int | None = None) -> dict[str, int]:
    """Of the windows from `first` to `last`."""
    end = (first if last is None else last) + 1
    return dict(family(harness).labels_between((FIRST + first) * HOUR, (FIRST + end) * HOUR).counts)


async def test_windows_follow_one_another_and_closed_ones_are_exact(clock: HourClock) -> None:
    async with site_server(wall_clock=clock) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *counted(0, 3, 2))
        assert (list(harness.server.families.by_name), list(harness.server.counters)) == (["pages"], [])
        clock.show(1)
        await harness.send(*web, *counted(1, 10))
        await harness.advance(1)
        assert windows(harness) == [(0, 5, "incomplete"), (1, 10, "open")]
        assert family(harness).sites_waited_for(FIRST) == ["web"]
        left = await harness.send(*web, leave(0, 5))
        assert isinstance(left[-1], FamilyLeaveAck)
        await harness.advance(1)
        assert windows(harness) == [(0, 5, "closed"), (1, 10, "open")]
        assert (labels(harness, 0), labels(harness, 1)) == ({"{p=a}": 3, "{p=b}": 2}, {"{p=a}": 10})
        assert labels(harness, 0, 1) == family(harness).published.counts == {"{p=a}": 13, "{p=b}": 2}
        assert family(harness).published_answer.contains(15)
        assert [each.label for each in family(harness).published.top(0.5).labels] == ["{p=a}"]


async def test_site_that_left_is_acknowledged_again_and_has_one_tombstone_for_all_windows(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        web = await harness.connect("web")
        for window in range(5):
            clock.show(window)
            await harness.send(*web, *counted(window, 1), leave(window, 1))
            await harness.advance(1)
        assert shown(store.tombstones(web[0].site_id)) == (("pages@hour", FIRST + 5),)
        assert [*map(type, await harness.send(*web, leave(3, 1)))] == [FamilyLeaveAck]
        assert [*map(type, await harness.send(*web, join(4)))] == [FamilyLeaveAck]
        assert family(harness).known_total == 5
        harness.server.on_disconnect(*web)
    async with site_server(store, wall_clock=clock) as harness:  # a site that is a member of none counts in the next
        web = await harness.connect("web")
        assert [*map(type, await harness.send(*web, leave(4, 1)))][-1] is FamilyLeaveAck
        await harness.send(*web, *counted(5, 7))
        assert family(harness).known_total == 12


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_labels_of_windows_that_are_not_kept_stay_in_the_total(clock: HourClock, kind: str) -> None:
    store: StateStore = MemoryStore() if kind == "memory" else SqliteStore(None)
    async with site_server(store, wall_clock=clock) as harness:
        harness.server.create("pages", RULE)
        web = await harness.connect("web")
        for window in range(5):
            clock.show(window)
            await harness.send(*web, *counted(window, 10 + window, window), leave(window, 10 + 2 * window))
            await harness.advance(1)
        clock.show(5)
        await harness.advance(1)
        assert windows(harness) == [(3, 16, "closed"), (4, 18, "closed"), (5, 0, "open")]
        assert family(harness).published.counts == {"{p=a}": 60, "{p=b}": 10}
        assert {*load_families(store)} == {"pages@hour", name(3), name(4)}
        unknown = family(harness).labels_between((FIRST + 1) * HOUR, (FIRST + 4) * HOUR)
        assert unknown.answer("{p=a}")[1:] == (13, 13, 13 + 10 + 11 + 12)  # 1 and 2: at most all of it
        late = await harness.connect("late")
        await harness.send(*late, *counted(0, 100), leave(0, 100))
        await harness.advance(1)
        assert windows(harness)[0] == (3, 16, "closed")
        before = family(harness).published
        assert before.counts == {"{p=a}": 160, "{p=b}": 10}
    async with site_server(store, wall_clock=clock) as harness:
        assert (family(harness).published, family(harness).first) == (before, FIRST + 3)
        assert windows(harness) == [(3, 16, "closed"), (4, 18, "closed"), (5, 0, "open")]


async def test_retired_site_is_lost_to_every_window_it_may_have_counted_in(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *counted(0, 1), leave(0, 1))
        clock.show(1)
        await harness.send(*web, *counted(1, 5, 2))
        harness.server.on_disconnect(*web)
        clock.show(2)
        assert harness.server.drop_site("web") == 1
        await harness.advance(1)
        expected = [(0, 0, "closed"), (1, 1, "incomplete"), (2, 1, "open")]
        assert [(each.period - FIRST, each.lost, str(each.state)) for each in family(harness).youngest()] == expected
        returning = FakeConnection()
        assert await harness.server.on_hello(returning, Hello(VERSION, "web", 1)) is None
        known = KnownLabels(name(1), 7, False, (("{p=a}", 5), ("{p=b}", 2)))
        assert returning.received == [known, IncarnationRetired((("pages@hour", FIRST + 1),))]
    async with site_server(store, wall_clock=clock) as harness:
        assert [(each.period - FIRST, each.lost, str(each.state)) for each in family(harness).youngest()] == expected


async def test_smallest_epsilon_of_all_sites_is_in_force_in_later_windows(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        web, app = await harness.connect("web"), await harness.connect("app")
        await harness.send(*web, join(0))
        await harness.send(*app, join(0, epsilon=0.01))
        clock.show(1)
        steps = await harness.send(*web, *counted(1, 1000))
        assert [each.label_step for each in steps if isinstance(each, FamilySteps)] == [4]  # for two sites, as before
        assert load_rules(store)["pages@hour"].epsilon == 0.01


async def test_other_windows_and_names_are_rejected(clock: HourClock) -> None:
    async with site_server(wall_clock=clock, max_counters=4) as harness:
        web = await harness.connect("web")

        async def rejected(item: FamilyJoin | Join) -> str:
            (received,) = await harness.send(*web, item)
            assert isinstance(received, FamilyRejected | CounterRejected)
            return received.reason

        await harness.send(*web, join(0), FamilyJoin("plain", LABELS, 0.1, 0.0, 0, 1, 1, 0, 0))
        assert "count it with per='hour'" in await rejected(join(0)._replace(family="pages"))
        assert "has no windows" in await rejected(join(0)._replace(family=f"plain@hour:{FIRST}"))
        assert "delete the family" in await rejected(join(0)._replace(family="pages@day:5"))
        assert "as this window is called" in await rejected(join(0)._replace(family=f"pages@hour,UTC,0:{FIRST}"))
        assert "is a counter with labels" in await rejected(join(1)._replace(kind=VALUES, accuracy=0.1))
        assert "is a family" in await rejected(Join(name(0), 0, 1))
        assert "is a family" in await rejected(Join("pages@hour", 0, 1))
        for window in range(2, 2 + MAX_AHEAD):
            await harness.send(*web, join(window))
        too_early = await rejected(join(2 + MAX_AHEAD))
        assert too_early.startswith("counter = 'pages (hour from 2025-11-2")
        assert "a window that begins soon" in too_early
        for window in range(-1, MAX_AHEAD - 16, -1):  # max_counters * 4 in all
            await harness.send(*web, join(window))
        assert "too many windows are open at once" in await rejected(join(-20))
        with pytest.raises(InvalidParameter, match="does not end like a window's"):
            harness.server.create("ticks@hour", Config())
        with pytest.raises(InvalidParameter, match="not taken"):
            harness.server.create("pages", RULE)
        assert sorted(harness.server.families.by_name) == ["pages", "plain"]


async def test_readers_see_windows_only_once_they_are_saved(clock: HourClock) -> None:
    store = MemoryStore()
    async with site_server(store, wall_clock=clock) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *counted(0, 5))
        harness.server.on_frame(*web, [leave(0, 5)], 10)
        clock.show(1)
        harness.server.tick()
        assert (windows(harness), labels(harness, 0)) == ([(0, 5, "incomplete"), (1, 0, "open")], {"{p=a}": 5})
        await harness.server.flush()
        assert windows(harness) == [(0, 5, "closed"), (1, 0, "open")]
        window = family(harness).kept[FIRST]
        assert window.published.counts == {"{p=a}": 5}
        late = await harness.connect("late")
        harness.server.on_frame(*late, [*counted(0, 7)], 10)
        assert (window.published.counts, family(harness).published_answer.lower) == ({"{p=a}": 5}, 5)
        await harness.server.flush()
        assert (window.published.counts, family(harness).published_answer.lower) == ({"{p=a}": 12}, 12)


# Windows for a family that has none


def plain(total: int, *label_counts: int) -> list[FamilyJoin | FamilyLabels | FamilyReport]:
    named = FamilyLabels("pages", ("{p=a}", "{p=b}"))
    return [FamilyJoin("pages", LABELS, 0.1, 0.0, 0, 1, 1, 0, 0), named, FamilyReport("pages", 0, total, label_counts)]


HOURLY = FamilyRule(LABELS, 0.1, windows=WindowRule("hour"))


@pytest.mark.parametrize("store", [MemoryStore, lambda: SqliteStore(None)])
async def test_family_gets_windows_from_the_next_edge_on_and_keeps_its_labels(
    clock: HourClock, store: Callable[[], StateStore]
) -> None:
    saved = store()
    async with site_server(saved, wall_clock=clock) as harness:
        old, new = await harness.connect("old"), await harness.connect("new")
        await harness.send(*old, *plain(2_000, 1, 1_900, 2, 100))
        *_, rejected = await harness.send(*new, join(0))  # it waits, and tries again
        assert isinstance(rejected, FamilyRejected)
        assert "`countless counter set pages --per hour` starts some" in rejected.reason
        with pytest.raises(InvalidParameter, match="'pages' gets windows only while no site counts it: end 'old'"):
            harness.server.configure("pages", HOURLY)
        await harness.send(*old, FamilyLeave("pages", 0, 1, 1, 2_000, 2_000))
        harness.server.configure("pages", HOURLY)
        await harness.server.flush()
        total = harness.server.families.by_name["pages"].published_answer
        assert (total.lower, total.upper, total.state) == (2_000, 2_000, State.EXACT)
        await harness.send(*new, *counted(0, 5))
        *_, refused = await harness.send(*(await harness.connect("third")), plain(0)[0])
        assert isinstance(refused, FamilyRejected)
        now, edge = window_answer(family(harness), "now"), family(harness).calendar.local_time(int((FIRST + 1) * HOUR))
        assert (now.lower, now.upper >= 2_005, now.complete, now.known_since) == (0, True, False, edge)
        clock.show(1)
        await harness.send(*new, *counted(1, 3), leave(0, 5))
        await harness.advance(1)
        assert (windows(harness), window_answer(family(harness), "now").known_since) == ([(1, 3, "open")], None)
        harness.server.on_disconnect(*new)
    clock.show(2)
    async with site_server(saved, wall_clock=clock) as harness:
        new = await harness.connect("new")
        await harness.send(*new, *counted(1, 4), leave(1, 4))
        await harness.advance(1)
        assert windows(harness) == [(1, 4, "closed"), (2, 0, "open")]
        assert family(harness).published.counts == {"{p=a}": 1_909, "{p=b}": 100}
        assert (labels(harness, 1), family(harness).kept_from) == ({"{p=a}": 4}, (FIRST + 1) * HOUR)
        top = family(harness).labels_between(FIRST * HOUR, (FIRST + 3) * HOUR).top(0.05)
        assert (top.total.lower, top.total.upper) == (4, 2_009)
        harness.server.configure("pages", replace(HOURLY, windows=WindowRule("hour", keep=1)))
        harness.server.delete("pages")
        third = await harness.connect("third")
        await harness.send(*third, *plain(1, 1, 1))
        assert harness.server.families.by_name["pages"].known_total == 1


async def test_site_that_had_left_a_family_before_it_got_windows_counts_again_after_it_was_deleted(
    clock: HourClock,
) -> None:
    async with site_server(wall_clock=clock) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *plain(1, 1, 1), FamilyLeave("pages", 0, 1, 1, 1, 1))
        harness.server.configure("pages", HOURLY)
        harness.server.delete("pages")
        await harness.send(*web, *plain(5, 1, 5))
        assert harness.server.families.by_name["pages"].known_total == 5


async def test_windows_of_a_family_are_shown_as_saved_only_once_they_are(clock: HourClock) -> None:
    store = PausedStore()
    async with site_server(store, wall_clock=clock) as harness:
        web = await harness.connect("web")
        await harness.send(*web, *plain(100, 1, 100))
        before = harness.server.families.by_name["pages"]
        shown = before.published_answer
        store.pause()
        last = FamilyReport("pages", 0, 150, (1, 150))
        harness.server.on_frame(*web, [last, FamilyLeave("pages", 0, 1, 1, 150, 150)], 10)
        harness.server.configure("pages", HOURLY)
        assert (family(harness).published_answer.lower, shown.lower) == (100, 100)
        assert (family(harness).published.counts, family(harness).most_not_kept) == ({"{p=a}": 100}, shown.upper)
        store.resume()
        await harness.server.flush()
        assert (family(harness).published_answer.lower, family(harness).published.counts) == (150, {"{p=a}": 150})
