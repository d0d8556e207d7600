"""A fleet large enough for plans: the server computes them in the background, and `auto` uses them."""

import asyncio

import pytest

from countless.core.messages import SetTrigger, SiteId, StartRound
from countless.core.site import Site
from countless.randomness import SeededRandom
from countless.server.kinds.counters import Counters
from countless.server.sessions.session_table import Session
from countless.wire.frames import Join
from support.site_server import FakeConnection, SiteServerHarness, site_server

pytestmark = pytest.mark.slow

SITES, BATCH, ALPHA = 200, 7, 0.05


class Fleet:
    """Production sites on lists instead of sockets."""

    def __init__(self, table: SiteServerHarness) -> None:
        self._table = table
        self._sites: list[tuple[Site, Session, FakeConnection]] = []

    @property
    def total(self) -> int:
        return sum(site.count for site, _, _ in self._sites)

    async def join(self, number: int) -> None:
        session, connection = await self._table.connect(f"site-{number}")
        site = Site("hits", SiteId(f"site-{number}", 1), SeededRandom(number))
        site.add(1)
        self._table.server.on_frame(session, connection, [Join(*site.snapshot()), *site.resend()], 10)
        self._sites.append((site, session, connection))

    async def add(self, n: int) -> None:
        """At every site, and deliver all messages that this causes."""
        for site, session, connection in self._sites:
            messages = site.add(n)
            if messages:
                self._table.server.on_frame(session, connection, list(messages), 10)
        await self.deliver()

    async def deliver(self) -> None:
        delivered = True
        while delivered:
            delivered = False
            await self._table.server.flush()
            for site, session, connection in self._sites:
                received, connection.received = connection.received, []
                replies = [site.receive(item) for item in received if isinstance(item, StartRound | SetTrigger)]
                for messages in filter(None, replies):
                    self._table.server.on_frame(session, connection, list(messages), 10)
                    delivered = True


async def test_large_fleet_switches_to_a_randomised_scheme_and_stays_within_its_bound() -> None:
    async with site_server(alpha=ALPHA) as table:
        fleet = Fleet(table)
        for number in range(SITES):
            await fleet.join(number)
        await fleet.deliver()
        table.server.tick()
        table.server.tick()
        await asyncio.wrap_future(table.server.kind(Counters).planner.busy)
        schemes = set()
        for lap in range(60):
            await fleet.add(BATCH * (lap + 1))
            answer = table.server.counter("hits").published_answer
            assert answer.lower <= fleet.total <= answer.upper, answer
            schemes.add(answer.scheme)
        assert "dithered" in schemes
