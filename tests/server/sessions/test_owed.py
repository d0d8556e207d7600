"""Sites that are connected, send heartbeats, and do not answer; and slow ones, which must not be taken for such."""

from collections.abc import Awaitable, Callable

import pytest

from countless.core.answer import State
from countless.core.budget.rule import BudgetRule
from countless.core.family.rule import LABELS
from countless.core.messages import Snapshot, StartRound
from countless.randomness import SeededRandom
from countless.server.sessions.awaited_answers import MAX_GROUP_AGE, AwaitedAnswers
from countless.server.sessions.session_table import Session
from countless.server.settings import Config
from countless.server.storage.memory_store import MemoryStore
from countless.wire.families import FamilyJoin, FamilyLabels, FamilyReport
from countless.wire.frames import Join, Leave, Sync
from countless.wire.keys import COUNTER, Key
from support.site_server import FakeConnection, SiteServerHarness, site_server
from support.spender import first_ask
from support.stores import PausedStore

LIMIT, TICK = 10.0, 2.5
Site = tuple[Session, FakeConnection]
Waits = Callable[[], bool]


def snapshots(connection: FakeConnection, count: int) -> list[Snapshot]:
    """Answers to all requests that it has received."""
    asked = [item for item in connection.received if isinstance(item, StartRound)]
    return [Snapshot(item.counter, item.round, count) for item in asked]


def state_of(harness: SiteServerHarness, name: str = "hits") -> State:
    return harness.server.counter(name).published_answer.state


# Each: `mute` is asked for something and does not answer. Whether the coordinator still waits.


async def counter_waits(harness: SiteServerHarness, mute: Site, other: Site) -> Waits:
    await harness.send(*mute, Join("hits", 0, 30))
    await harness.send(*other, Join("hits", 0, 10))
    harness.server.configure("hits", Config(alpha=0.2, scheme="exact"))
    await harness.server.flush()
    await harness.send(*other, *snapshots(other[1], 10))
    return lambda: state_of(harness) is State.LEARNING


async def budget_waits(harness: SiteServerHarness, mute: Site, other: Site) -> Waits:
    harness.server.budgets.create("tokens", BudgetRule(10, slack=0))
    await harness.send(*mute, first_ask("tokens", 1))
    await harness.send(*other, first_ask("tokens", 10))
    return lambda: harness.server.budgets.get("tokens").periods[0].coordinator.recalling


async def family_waits(harness: SiteServerHarness, mute: Site, other: Site) -> Waits:
    join = FamilyJoin("pages", LABELS, 0.1, 0.0, 0, 1, 1, 0, 0)
    report = FamilyReport("pages", 0, 1_000, (1, 1_000))
    await harness.send(*mute, join, FamilyLabels("pages", ('{p="a"}',)), report)
    await harness.send(*other, join)  # its share of the error is taken from the other one, which has to confirm that
    return lambda: harness.server.families.by_name["pages"].coordinator.state is State.LEARNING


SCENES = [counter_waits, budget_waits, family_waits]
Scene = Callable[[SiteServerHarness, Site, Site], Awaitable[Waits]]


@pytest.mark.parametrize("scene", SCENES)
async def test_site_that_sends_heartbeats_and_no_answer_is_disconnected_and_named(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    async with site_server(silent_after=LIMIT) as harness:
        mute, other = await harness.connect("mute"), await harness.connect("other")
        waits = await scene(harness, mute, other)
        await harness.advance(0.0)
        for _ in range(4):
            await harness.advance(TICK)
            await harness.send(*mute, Sync(0))
            assert waits()
        await harness.advance(TICK)
        assert not waits()
        assert mute[1].close_reason == "timed out: no answer to a request of the coordinator"
        assert (mute[0].state, other[0].state, other[1].close_reason) == ("silent", "connected", None)
        assert harness.server.dropped == {"no answer": 1}
        assert "site timed out, a request was not answered: site='mute'" in caplog.text


@pytest.mark.parametrize("scene", SCENES)
async def test_without_the_deadline_it_would_be_waited_for_without_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AwaitedAnswers, "is_late", lambda *args: False)
    async with site_server(silent_after=LIMIT) as harness:
        mute, other = await harness.connect("mute"), await harness.connect("other")
        waits = await scene(harness, mute, other)
        for _ in range(100):
            await harness.advance(LIMIT)
            harness.server.on_frame(*mute, [Sync(0)], 10)
            harness.server.on_frame(*other, [Sync(0)], 10)
        assert waits()


async def test_it_is_accepted_again_and_no_event_is_lost_or_counted_twice() -> None:
    async with site_server(silent_after=LIMIT) as harness:
        mute, other = await harness.connect("mute"), await harness.connect("other")
        await counter_waits(harness, mute, other)
        await harness.advance(0.0)
        await harness.advance(LIMIT + 1)
        answer = harness.server.counter("hits").published_answer
        assert (answer.state, answer.silent, answer.estimate) == (State.DEGRADED, ("mute",), 40)
        assert mute[0].connection is None
        mute = await harness.connect("mute")
        await harness.send(*mute, Join("hits", 0, 33))
        assert harness.server.counter("hits").published_answer.silent == ()
        await harness.send(*mute, Leave("hits", 0, 35))
        assert harness.server.counter("hits").published_answer.estimate == 45


async def test_site_that_connects_after_a_restart_and_joins_nothing_is_not_waited_for() -> None:
    store = MemoryStore()
    async with site_server(store, silent_after=LIMIT) as harness:
        await harness.send(*await harness.connect("mute"), Join("hits", 0, 30))
    async with site_server(store, silent_after=LIMIT) as harness:
        mute = await harness.connect("mute")
        for _ in range(6):
            assert state_of(harness) is State.LEARNING
            await harness.advance(TICK)
            harness.server.on_frame(*mute, [Sync(0)], 10)
        answer = harness.server.counter("hits").published_answer
        assert (answer.state, answer.silent) == (State.DEGRADED, ("mute",))


async def test_connecting_again_and_again_does_not_spare_the_answer() -> None:
    async with site_server(silent_after=LIMIT) as harness:
        mute, other = await harness.connect("mute"), await harness.connect("other")
        waits = await counter_waits(harness, mute, other)
        while waits():
            mute = await harness.connect("mute")
            await harness.send(*mute, Join("hits", 0, 30))
            await harness.send(*other, Sync(0))
            await harness.advance(TICK)
        assert MAX_GROUP_AGE * LIMIT < harness.time <= MAX_GROUP_AGE * LIMIT + 2 * TICK


async def test_time_in_which_a_request_waits_for_the_disk_does_not_count() -> None:
    store = PausedStore()
    async with site_server(store, silent_after=LIMIT) as harness:
        site = session, connection = await harness.connect("a")
        await harness.send(*site, Join("hits", 0, 10))

        def tick(seconds: int) -> None:
            for _ in range(seconds):
                harness.time += 1.0
                harness.server.on_frame(session, connection, [Sync(0)], 10)
                harness.server.tick()

        store.pause()
        harness.server.configure("hits", Config(alpha=0.2))
        await store.save_waits()
        tick(1_000)
        assert not snapshots(connection, 10)
        store.resume()
        await harness.server.flush()
        tick(int(LIMIT / 2))
        assert len(snapshots(connection, 10)) == 1
        assert (session.state, state_of(harness)) == ("connected", State.LEARNING)
        tick(int(LIMIT))
        assert session.state == "silent"


@pytest.mark.parametrize("stops", [False, True])
async def test_slow_site_with_many_counters_is_waited_for_while_it_answers(stops: bool) -> None:
    names, store = [f"counter {number}" for number in range(200)], MemoryStore()
    async with site_server(store, silent_after=LIMIT) as harness:
        await harness.send(*await harness.connect("large"), *(Join(name, 0, 30) for name in names))
    async with site_server(store, silent_after=LIMIT) as harness:
        large = await harness.connect("large")
        await harness.send(*large, *(Join(name, 0, 30) for name in names))
        answers = snapshots(large[1], 30)
        assert len(answers) == 200
        rng = SeededRandom(0)
        while len(answers) > 100 * stops:
            await harness.advance(LIMIT - 1)
            await harness.send(*large, Sync(0), *(answers.pop(rng.randbelow(len(answers))) for _ in range(10)))
        assert (large[0].state, harness.time) == ("connected", 90 if stops else 180)
        for _ in range(3):  # the first finds the last answers
            await harness.advance(LIMIT - 1)
            harness.server.on_frame(*large, [Sync(0)], 10)
        assert large[0].state == ("silent" if stops else "connected")
        assert {state_of(harness, name) for name in names} == {State.DEGRADED if stops else State.EXACT}


NEVER = Key(COUNTER, "never answered")


class Core:
    """What the core says of one site: the rounds that it has to answer."""

    def __init__(self) -> None:
        self.owed = AwaitedAnswers()
        self.awaited: dict[Key, int] = {}
        self._round = 0

    def ask(self, request: Key) -> None:
        self._round += 1
        self.awaited.setdefault(request, self._round)
        self.owed.ask(request)

    def is_late(self, now: float) -> bool:
        return self.owed.is_late(now, LIMIT, self.awaited.get)


def test_request_that_is_never_answered_is_found_whatever_else_the_site_does() -> None:
    late_at = []
    for seed in range(100):
        rng, core, now, asked_at = SeededRandom(seed), Core(), 0.0, -1.0
        pause = (0.0, TICK, 3 * TICK)[rng.randbelow(3)]  # it answers something else, or joins, so often
        moved_at = 0.0
        while not core.is_late(now) or asked_at < 0:
            if asked_at < 0 and now >= 5 * LIMIT:
                core.ask(NEVER)
                asked_at = now
            for _ in range(rng.randbelow(3)):
                core.ask(Key(COUNTER, f"counter {rng.randbelow(50)}"))
            others = [request for request in core.awaited if request != NEVER]
            if now - moved_at >= pause and others:
                moved_at = now
                del core.awaited[others[rng.randbelow(len(others))]]
                if rng.randbelow(2):
                    core.owed.note_progress()
            now += TICK
        late_at.append(now - asked_at)
    assert max(late_at) <= 2 * MAX_GROUP_AGE * LIMIT + 3 * TICK


def test_site_that_answers_in_order_and_slowly_is_never_late() -> None:
    for seed in range(100):
        rng, core, now = SeededRandom(seed), Core(), 0.0
        for number in range(50):
            core.ask(Key(COUNTER, f"counter {number}"))
        next_answer = 0.0
        for _ in range(400):
            assert not core.is_late(now), f"seed {seed}"
            if now >= next_answer and core.awaited:
                del core.awaited[next(iter(core.awaited))]
                next_answer = now + TICK * (1 + rng.randbelow(2))
            if rng.randbelow(20) == 0:
                core.ask(Key(COUNTER, f"counter {rng.randbelow(100)}"))
            now += TICK
