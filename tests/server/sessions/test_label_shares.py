"""A token that invents labels cannot fill the memory, and nothing is lost or counted twice."""

import random
from contextlib import suppress
from typing import Any

import pytest

from countless.core.answer import State
from countless.core.family.rule import LABELS, FamilyRule
from countless.core.family.site import LABEL_CAP
from countless.core.messages import SiteId
from countless.core.periods.window import WindowRule
from countless.errors import LimitReached, ProtocolError
from countless.server.kinds.family import TrackedFamily, WindowedFamily
from countless.server.kinds.label_shares import MEMBER_BYTES, LabelShares, LabelUse, label_bytes
from countless.server.sessions.session_table import Session
from countless.server.storage.memory_store import MemoryStore
from countless.server.tuning import TUNING
from countless.wire.families import FamilyJoin, FamilyLabels, FamilyLeave, FamilyRejected, FamilyReport, LabelCap
from countless.wire.frames import VERSION, Hello, Sync, UpItem
from countless.wire.keys import FAMILY, Key
from support.site_server import FakeConnection, SiteServerHarness, site_server

HOUR, FIRST = 3600.0, 490_000
MOST = 20_000  # bytes of one token
LIMITS: dict[str, Any] = {"max_label_mb": 1, "max_share": MOST / 1e6, "silent_after": 1.0}
REASON = "max_share of max_label_mb"


async def connect(harness: SiteServerHarness, site: str, peer: str = "token 1") -> tuple[Session, FakeConnection]:
    connection = FakeConnection()
    session = await harness.server.on_hello(connection, Hello(VERSION, site, 1), peer)
    assert session is not None
    return session, connection


def join(family: str, total: int = 0) -> FamilyJoin:
    return FamilyJoin(family, LABELS, 0.1, 0.0, 0, 1, 1, total, total)


def counted(family: str, labels: list[str], total: int | None = None) -> list[FamilyLabels | FamilyReport]:
    """One event of each."""
    pairs = tuple(value for number in range(1, len(labels) + 1) for value in (number, 1))
    return [FamilyLabels(family, tuple(labels)), FamilyReport(family, 0, total or len(labels), pairs)]


def is_refused(harness: SiteServerHarness, link: tuple[Session, FakeConnection], items: list[UpItem]) -> bool:
    """As the owner of a connection, which closes it."""
    try:
        harness.server.on_frame(*link, items, 10)
    except LimitReached as error:
        if REASON not in str(error):
            raise
        harness.server.on_disconnect(*link)
        return True
    return False


def caps(items: list[Any]) -> list[int]:
    return [item.cap for item in items if isinstance(item, LabelCap)]


def shares(harness: SiteServerHarness) -> LabelShares:
    return harness.server.families.label_shares


def recount(harness: SiteServerHarness) -> dict[LabelUse, int]:
    parts: dict[LabelUse, int] = {}
    objects = harness.server.families
    kept = [family for windows in objects.windowed.values() for family in windows.saved]
    plain = [family for family in objects.by_name.values() if isinstance(family, TrackedFamily)]
    for tracker in (*plain, *kept):
        parts[LabelUse(tracker.key)] = label_bytes(tracker.coordinator.known)
        for site_id, member in tracker.coordinator.members():
            parts[LabelUse(tracker.key, site_id)] = MEMBER_BYTES + label_bytes(member.counts)
    for session in harness.server.sessions:
        named = session.own.get(FAMILY)
        for key, labels in named.by_number.items() if named else ():
            parts[LabelUse(key, session.site_id, numbers=True)] = label_bytes(labels[1:])
    return {part: size for part, size in parts.items() if size}


async def test_token_that_names_labels_beyond_its_share_is_disconnected_and_its_neighbour_counts_on() -> None:
    async with site_server(**LIMITS) as harness:
        honest = await connect(harness, "web", peer="token 2")
        await harness.send(*honest, join("pages"), *counted("pages", ["a", "b"]))
        refused = accepted = 0
        for number in range(60):  # on new connections and by new sites, with other labels each time
            evil = await connect(harness, f"evil {number % 3}")
            labels = [f"{number} {each}" for each in range(10)]
            if is_refused(harness, evil, [join("pages"), *counted("pages", labels, 10 * (number // 3 + 1))]):
                refused += 1
            else:
                accepted += 10
            if number % 2:
                harness.server.on_disconnect(*evil)
            assert shares(harness).bytes.used("token 1") <= MOST
            assert shares(harness).parts() == recount(harness)
        assert refused > 30
        family = harness.server.families.by_name["pages"]
        assert len(family.coordinator.known) == accepted + 2
        received = await harness.send(*honest, *counted("pages", [f"c{each}" for each in range(40)], 42))
        assert caps(received) == []
        assert family.coordinator.answer("c37").lower == 1


async def test_site_is_told_to_name_no_new_labels_before_it_is_refused_and_again_when_there_is_room() -> None:
    async with site_server(**LIMITS) as harness:
        many = [f"x{each}" for each in range(42)]
        web = await connect(harness, "web")
        assert caps(await harness.send(*web, join("pages"), *counted("pages", ["a"]))) == []
        received = await harness.send(*web, join("users"), *counted("users", many))
        assert caps(received) == []  # it is told when it names the next one
        assert shares(harness).bytes.used("token 1") >= TUNING.labels_nearly_full * MOST
        received = await harness.send(*web, FamilyLabels("pages", ("b",)), FamilyReport("pages", 0, 3, (1, 2, 2, 1)))
        assert caps(received) == [0]
        events = [FamilyReport("pages", 0, total, (1, 2, 0, total - 3)) for total in range(4, 900, 7)]
        assert caps(await harness.send(*web, *events)) == []  # of the labels that it has, and of the overflow label
        family = harness.server.families.by_name["pages"]
        assert (family.published_answer.lower, family.published_answer.state) == (events[-1].total, State.HOLDING)
        harness.server.delete("users")
        web[1].received.clear()
        await harness.advance(0.5)
        assert caps(web[1].received) == [LABEL_CAP]


async def test_site_that_was_refused_delivers_everything_once_there_is_room() -> None:
    async with site_server(**LIMITS) as harness:
        many = [f"x{each}" for each in range(45)]
        other = await connect(harness, "other")
        assert not is_refused(harness, other, [join("other"), *counted("other", many)])
        web = await connect(harness, "web")
        assert not is_refused(harness, web, [join("pages"), *counted("pages", ["a"])])
        rest: list[UpItem] = [FamilyLabels("pages", tuple(many)), FamilyReport("pages", 0, 46, (2, 3))]
        assert is_refused(harness, web, rest)
        family = harness.server.families.by_name["pages"]
        await harness.advance(2.0)
        assert (family.published_answer.state, family.published_answer.lower) == (State.DEGRADED, 1)
        third = await connect(harness, "third")
        joins = [join(f"family {each}") for each in range(20)]
        rejected = [item.reason for item in await harness.send(*third, *joins) if isinstance(item, FamilyRejected)]
        assert len(rejected) > 5
        assert all(REASON in reason for reason in rejected)
        harness.server.delete("other")
        web = await connect(harness, "web")
        assert not is_refused(harness, web, [join("pages", 46), *counted("pages", ["a", *many])])
        await harness.server.flush()
        assert (family.published_answer.state, family.published_answer.lower) == (State.HOLDING, 46)
        assert len(family.coordinator.known) == 46


async def test_limit_of_all_holds_for_operators_and_what_was_loaded_belongs_to_the_token_that_connects() -> None:
    store = MemoryStore()
    async with site_server(store, **LIMITS) as harness:
        web = await connect(harness, "web")
        await harness.send(*web, join("pages"), *counted("pages", ["é" * 100, "b"]))
        used = shares(harness).bytes.total
        assert shares(harness).bytes.used("token 1") == used > 0
    async with site_server(store, **LIMITS) as harness:
        assert shares(harness).bytes.used("token 1") == 0 < shares(harness).bytes.total
        await connect(harness, "web")
        assert (
            shares(harness).bytes.used("token 1")
            == shares(harness).size(LabelUse(Key(FAMILY, "pages"), SiteId("web", 1)))
            > 0
        )
        assert shares(harness).parts() == recount(harness)
        operator = await connect(harness, "web 2", peer="")
        texts = [f"{each:0500}" for each in range(2000)]
        with pytest.raises(LimitReached, match=r"of all sites \(max_label_mb\)"):
            harness.server.on_frame(*operator, [join("pages"), *counted("pages", texts)], 10)


async def test_labels_do_not_move_to_a_token_that_has_no_room_for_them() -> None:
    async with site_server(**LIMITS) as harness:
        for number in range(10):
            web = await connect(harness, f"web {number}")
            await harness.send(*web, join("pages"), *counted("pages", [f"{number} {each}" for each in range(5)]))
            harness.server.on_disconnect(*web)
            with suppress(ProtocolError):
                await connect(harness, f"web {number}", peer="token 2")
            assert shares(harness).bytes.used("token 2") <= MOST
        assert shares(harness).bytes.used("token 2") > MOST / 2
        assert shares(harness).parts() == recount(harness)


async def test_sums_are_those_of_a_recount_whatever_happens() -> None:
    rng = random.Random(7)  # noqa: S311
    now = FIRST * HOUR
    async with site_server(wall_clock=lambda: now, **LIMITS | {"max_share": 0.5, "forget_after": 50.0}) as harness:
        rule = FamilyRule(LABELS, 0.1, windows=WindowRule("hour", keep=2))
        harness.server.create("hourly", rule)
        connected: dict[str, tuple[Session, FakeConnection]] = {}
        incarnation = dropped = 0
        for _ in range(400):
            action, site = rng.random(), f"s{rng.randrange(4)}"
            if site not in connected:
                incarnation += rng.random() < 0.5
                connection = FakeConnection()
                peer = f"token {rng.randrange(2)}"
                session = await harness.server.on_hello(connection, Hello(VERSION, site, incarnation), peer)
                if session is not None:
                    connected[site] = (session, connection)
                    harness.server.on_frame(session, connection, [Sync(1)], 10)
            elif action < 0.6:
                family = rng.choice(["f", "g", f"hourly@hour:{int(now // HOUR) - rng.randrange(2)}"])
                labels = [f"{rng.randrange(30)}" for _ in range(rng.randrange(1, 5))]
                items: list[UpItem] = [join(family), *counted(family, labels)]
                if rng.random() < 0.4:
                    items.append(FamilyLeave(family, 0, 1, 1, 0, 0))
                await harness.send(*connected[site], *items)
            elif action < 0.8:
                harness.server.on_disconnect(*connected.pop(site))
            elif action < 0.85 and harness.server.families.by_name:
                name = rng.choice(sorted(harness.server.families.by_name))
                harness.server.delete(name)
                if name == "hourly":
                    harness.server.create("hourly", rule)
            else:
                now += rng.choice([0.0, HOUR])
                await harness.advance(rng.choice([0.5, 2.0, 60.0]))
                connected = {each: pair for each, pair in connected.items() if pair[0].connection is pair[1]}
            assert shares(harness).parts() == recount(harness)
            hourly = harness.server.families.by_name["hourly"]
            assert isinstance(hourly, WindowedFamily)
            dropped += bool(hourly.dropped_windows.coordinator.known)
        assert dropped > 10
        for pair in connected.values():
            harness.server.on_disconnect(*pair)
        await harness.advance(100.0)
        for name in list(harness.server.families.by_name):
            harness.server.delete(name)
        assert (shares(harness).bytes.total, shares(harness).parts(), len(harness.server.sessions)) == (0, {}, 0)
        assert [shares(harness).bytes.used(f"token {each}") for each in range(2)] == [0, 0]


def test_label_of_a_dropped_window_still_belongs_to_the_peer_that_brought_it() -> None:
    labels = LabelShares(1, 0.5)
    family = Key(FAMILY, "f")
    labels.add_labels(family, "honest", ["a"])
    for hour in range(5):
        window = Key(FAMILY, "f", "hour", FIRST + hour)
        labels.add_labels(window, "honest", ["a"])
        labels.add_labels(window, "evil", [f"evil {hour}"])
        new = {f"evil {hour}"}
        labels.drop_window(window, {"a": 1, f"evil {hour}": 1}, family, new)
        assert new == set()
    assert (labels.bytes.used("honest"), labels.bytes.used("evil")) == (label_bytes(["a"]), 5 * label_bytes(["evil 0"]))
