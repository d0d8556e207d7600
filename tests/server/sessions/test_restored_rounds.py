"""The site server, its SQLite file, and copies of it: round numbers of counters after a restore."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from countless.core.messages import DownMessage, SiteId, UpMessage
from countless.core.site import Site
from countless.planning.failure_budget import round_eta
from countless.randomness import SeededRandom
from countless.server.kinds import counter
from countless.server.sessions.session_table import Session
from countless.server.storage.backup import back_up, restore
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import Join, UpItem
from support.restored_rounds import Recording
from support.saved import load_counters
from support.site_server import FakeConnection, SiteServerHarness, site_server

DELTA = 0.1


@asynccontextmanager
async def opened(state: Path) -> AsyncIterator[SiteServerHarness]:
    """A coordinator on the file, which it closes at the end."""
    store = SqliteStore(state)
    try:
        async with site_server(store, delta=DELTA) as harness:
            yield harness
    finally:
        store.close()


class Fleet:
    """Sites of the core behind sessions, which send each report at once and answer each message."""

    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}
        self._links: dict[str, tuple[Session, FakeConnection]] = {}

    async def connect(self, harness: SiteServerHarness, name: str) -> None:
        site = self.sites.setdefault(name, Site("hits", SiteId(name, 1), SeededRandom(len(self.sites))))
        self._links[name] = await harness.connect(name)
        await self._send(harness, name, Join(*site.snapshot()), *site.resend())

    async def count(self, harness: SiteServerHarness, name: str) -> None:
        await self._send(harness, name, *self.sites[name].add())

    async def _send(self, harness: SiteServerHarness, name: str, *items: UpItem) -> None:
        sent = [(name, items)] if items else []
        while sent:
            name, items = sent.pop(0)
            await harness.send(*self._links[name], *items)
            sent += [(each, replies) for each in self._links if (replies := self._replies(each))]

    def _replies(self, name: str) -> tuple[UpMessage, ...]:
        received = self._links[name][1].received
        messages = [item for item in received if isinstance(item, DownMessage)]
        received.clear()
        return tuple(reply for message in messages for reply in self.sites[name].receive(message))


@pytest.fixture
def scheme(monkeypatch: pytest.MonkeyPatch) -> Recording:
    scheme = Recording()
    monkeypatch.setattr(counter, "scheme_named", lambda name, adversary, **options: scheme)
    return scheme


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")], ids=["one site in the copy", "all sites in the copy"])
async def test_rounds_after_restores_from_an_old_copy_have_new_numbers(
    names: tuple[str, ...], scheme: Recording, tmp_path: Path
) -> None:
    state, copy, fleet = tmp_path / "countless.sqlite", tmp_path / "copy", Fleet()
    for restored in range(4):
        if restored:
            restore(copy, state)
        async with opened(state) as harness:
            for name in fleet.sites:
                await fleet.connect(harness, name)
            for name in () if restored else names:
                await fleet.connect(harness, name)
            for number in range(30):
                await fleet.count(harness, list(fleet.sites)[number % len(fleet.sites)])
            if not restored:
                back_up(state, copy)
            for name in {"a", "b", "c"} - fleet.sites.keys():
                await fleet.connect(harness, name)
            for number in range(120):
                await fleet.count(harness, list(fleet.sites)[number % len(fleet.sites)])
            tracked = harness.server.counter("hits").coordinator
            assert {site.round for site in fleet.sites.values()} == {tracked.round}
            known = sum(site.count for site in fleet.sites.values())
            assert known - 3 * scheme.step <= tracked.known_total <= known
    assert len(scheme.active) >= 20
    assert len(set(scheme.active)) == len(scheme.active)
    assert sum(round_eta(DELTA, round) for round in scheme.active) <= DELTA


async def test_configured_counter_goes_on_with_the_next_number(scheme: Recording, tmp_path: Path) -> None:
    """Its sites are connected, and are not taken for sites that a lost coordinator has told of its rounds."""
    fleet = Fleet()
    async with opened(tmp_path / "countless.sqlite") as harness:
        for name in "ab":
            await fleet.connect(harness, name)
        for number in range(60):
            await fleet.count(harness, "ab"[number % 2])
        before = harness.server.counter("hits")
        number = before.coordinator.round
        harness.server.configure("hits", replace(before.spec, alpha=0.3))
        round = harness.server.counter("hits").coordinator.round
        for name in "ab":
            await fleet.connect(harness, name)
        assert harness.server.counter("hits").coordinator.round == round == number + 1


async def test_connection_that_breaks_before_the_join_does_not_make_a_lost_round_one_of_this_coordinator(
    scheme: Recording, tmp_path: Path
) -> None:
    state, copy, fleet = tmp_path / "countless.sqlite", tmp_path / "copy", Fleet()
    async with opened(state) as harness:
        await fleet.connect(harness, "a")
        for _ in range(30):
            await fleet.count(harness, "a")
        round = -1
        while fleet.sites["a"].round != round + 1:
            back_up(state, copy)
            round = load_counters(harness.store)["hits"][1].round
            await fleet.count(harness, "a")
    restore(copy, state)
    async with opened(state) as harness:
        session, connection = await harness.connect("a")
        harness.server.on_disconnect(session, connection)
        assert fleet.sites["a"].round == harness.server.counter("hits").coordinator.round == round + 1
        await fleet.connect(harness, "a")
        assert fleet.sites["a"].round == harness.server.counter("hits").coordinator.round == round + 2
        assert fleet.sites["a"].trigger == harness.server.counter("hits").coordinator.trigger_of(SiteId("a", 1))
