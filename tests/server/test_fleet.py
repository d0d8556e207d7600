"""A fleet large enough for plans: the host works them out ahead, in its own thread, and `auto` takes them up."""

import asyncio

import pytest

from countless.core.messages import SetTrigger, SiteId, StartRound, UpMessage
from countless.core.site import Site
from countless.randomness import SeededRandom
from countless.server.sessions.session_table import Session
from countless.wire.frames import Join
from support.service import FakeConnection, bench

pytestmark = pytest.mark.slow

SITES, BATCH, ALPHA = 200, 7, 0.05


class Fleet:
    """Production sites on lists instead of sockets."""

    def __init__(self) -> None:
        self.sites: list[tuple[Site, Session, FakeConnection]] = []

    def total(self) -> int:
        return sum(site.count for site, _, _ in self.sites)

    def deliver(self) -> list[tuple[Session, FakeConnection, tuple[UpMessage, ...]]]:
        """What the sites answer to all that has been sent to them."""
        answers: list[tuple[Session, FakeConnection, tuple[UpMessage, ...]]] = []
        for site, life, line in self.sites:
            got, line.got = line.got, []
            words = [site.receive(item) for item in got if isinstance(item, StartRound | SetTrigger)]
            answers += [(life, line, messages) for messages in words if messages]
        return answers


def test_a_large_fleet_comes_to_run_a_randomised_scheme_and_stays_within_its_bound() -> None:
    async def story() -> None:
        async with bench(alpha=ALPHA) as table:
            host, fleet = table.host, Fleet()

            async def settle() -> None:
                await host.flush()
                while answers := fleet.deliver():
                    for life, line, messages in answers:
                        host.on_frame(life, line, list(messages), 10)
                    await host.flush()

            for number in range(SITES):
                life, line = await table.connect(f"site-{number}")
                site = Site("hits", SiteId(f"site-{number}", 1), SeededRandom(number))
                site.add(1)
                host.on_frame(life, line, [Join(*site.snapshot()), *site.resend()], 10)
                fleet.sites.append((site, life, line))
            await settle()
            host.tick()
            host.tick()
            await asyncio.wrap_future(host.planner.busy)
            seen = set()
            for lap in range(60):
                for site, life, line in fleet.sites:
                    messages = site.add(BATCH * (lap + 1))
                    if messages:
                        host.on_frame(life, line, list(messages), 10)
                await settle()
                answer = host.counter("hits").published_answer
                assert answer.lower <= fleet.total() <= answer.upper, answer
                seen.add(answer.scheme)
            assert "dithered" in seen

    asyncio.run(story())
