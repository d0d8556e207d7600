"""Several coordinators that believe they own a shard, on a real log: only the last one can send a grant.

No coordinator here looks at a lease. So nothing but the log keeps the earlier ones from granting units twice.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import NamedTuple

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite, Verdict
from countless.core.messages import SiteId
from countless.errors import ProtocolError
from countless.randomness import SeededRandom
from countless.server.cluster.broker import LOG_STREAM, open_log
from countless.server.cluster.log_store import Fenced, LogStore
from countless.server.sessions.session_table import Session
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.wire.frames import VERSION, Hello
from support.site_server import FakeConnection
from support.spender import first_ask

pytestmark = pytest.mark.slow

TOKENS = BudgetId("tokens")
LIMIT = 60


class Stream(NamedTuple):
    session: Session
    connection: FakeConnection

    def take_messages(self) -> list[Quota]:
        """What the coordinator has sent about the budget since the last call."""
        found = [item for item in self.connection.received if isinstance(item, Quota)]
        self.connection.received.clear()
        return found


class Owner:
    """A coordinator that has taken the shard over, and does not know whether another one has since."""

    def __init__(self, store: LogStore) -> None:
        self.server = SiteServer(store, Settings())
        self.running = asyncio.create_task(self.server.run())
        self.streams: dict[str, Stream] = {}

    async def connect(self, site: str) -> Stream:
        connection = FakeConnection()
        session = await self.server.on_hello(connection, Hello(VERSION, site, 1))
        assert session is not None
        self.streams[site] = Stream(session, connection)
        return self.streams[site]

    def receive(self, site: str, *asks: Ask) -> None:
        session, connection = self.streams[site]
        with suppress(ProtocolError):  # the site knows a membership of a later owner
            self.server.on_frame(session, connection, list(asks), 10)

    async def saves(self) -> bool:
        """Whether everything so far could be saved. If not, another coordinator has taken the shard over."""
        flushing = asyncio.create_task(self.server.flush())
        await asyncio.wait({flushing, self.running}, return_when=asyncio.FIRST_COMPLETED)
        flushing.cancel()
        if self.running.done():
            assert isinstance(self.running.exception(), Fenced)
            return False
        return True

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.server.stop_threads()


@pytest.fixture
async def jetstream(client: Client) -> JetStreamContext:
    """With an empty log."""
    jetstream = client.jetstream()
    await open_log(jetstream)
    await jetstream.purge_stream(LOG_STREAM)
    return jetstream


async def take_over(jetstream: JetStreamContext, ownership_id: str) -> Owner:
    store = LogStore(jetstream, 0, ownership_id, lambda: True)
    await store.take_over()
    return Owner(store)


async def test_coordinator_that_lost_its_shard_cannot_send_a_grant(jetstream: JetStreamContext) -> None:
    first = await take_over(jetstream, "one")
    first.server.budgets.create("tokens", BudgetRule(LIMIT, slack=0))
    stream = await first.connect("web")
    first.receive("web", first_ask("tokens", 20))
    assert await first.saves()
    assert stream.take_messages() == [Quota(TOKENS, since=1, number=1, granted=20)]
    second = await take_over(jetstream, "two")
    first.receive("web", Ask(TOKENS, 2, 1, 1, 20, 0, 20, 0, 5))
    assert not await first.saves()
    assert stream.take_messages() == []
    budget = second.server.budgets.get("tokens").periods[0].coordinator
    known = budget.saved_site(SiteId("web", 1))
    assert known is not None
    assert (known.limit, budget.free) == (20, LIMIT - 20)
    await first.stop()
    await second.stop()


class Site:
    """It is connected to one owner, perhaps an old one, whose messages arrive late and in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = BudgetSite(TOKENS)
        self.want = 0  # of the request that waits
        self.sent: deque[Quota] = deque()
        self.owner: Owner

    async def connect(self, owner: Owner) -> None:
        self.sent.clear()
        self.owner = owner
        await owner.connect(self.name)
        self.owner.receive(self.name, self.state.resend())

    def take(self, n: int) -> Verdict:
        taken = self.state.take(n)
        self.want = n if taken.verdict is Verdict.WAITING else 0
        self.owner.receive(self.name, *taken.messages)
        return taken.verdict

    def receive(self) -> None:
        """The next message."""
        self.state.receive(self.sent.popleft())
        self.state.repeat()
        if self.want:
            self.take(self.want)
        self.owner.receive(self.name, *self.state.proceed())


class Game:
    """Three sites that ask old and new owners."""

    def __init__(self, jetstream: JetStreamContext, random: SeededRandom) -> None:
        self.sites = [Site(name) for name in "abc"]
        self.fenced = 0
        self._jetstream = jetstream
        self._random = random
        self._owners: list[Owner] = []  # all that have not found out yet that they are not

    @property
    def spent(self) -> int:
        return sum(site.state.spent for site in self.sites)

    async def start(self) -> None:
        await self._add_owner()
        for site in self.sites:
            await site.connect(self._owners[0])

    async def _add_owner(self) -> None:
        owner = await take_over(self._jetstream, str(self._random.randbelow(1 << 60)))
        if "tokens" not in owner.server.budgets.by_name:
            owner.server.budgets.create("tokens", BudgetRule(LIMIT, slack=0))
        self._owners.append(owner)

    async def step(self) -> None:
        random = self._random
        site, action = self.sites[random.randbelow(3)], random.randbelow(20)
        if action < 9 and not site.want:
            site.take(1 + random.randbelow(4))
        elif action < 15 and site.sent:
            site.receive()
        elif action < 17:
            await site.connect(self._owners[random.randbelow(len(self._owners))])
        else:
            await self._add_owner()
        await self._save(site.owner)

    async def _save(self, owner: Owner) -> None:
        if not await owner.saves():
            self._owners.remove(owner)
            self.fenced += 1
            await owner.stop()
        for site in self.sites:
            if site.owner is owner and site.name in owner.streams:
                site.sent += owner.streams[site.name].take_messages()
            if site.owner not in self._owners:
                await site.connect(self._owners[-1])

    async def spend_the_rest(self) -> None:
        """With the last owner."""
        owner, open_sites = self._owners[-1], list(self.sites)
        for site in self.sites:
            await site.connect(owner)
        while open_sites:
            await self._save(owner)
            for site in self.sites:
                while site.sent:
                    site.receive()
            open_sites = [site for site in self.sites if site.want or site.take(1) is not Verdict.EXHAUSTED]

    async def stop(self) -> None:
        for owner in self._owners:
            await owner.stop()


@pytest.mark.parametrize("seed", range(12))
async def test_sites_spend_the_limit_exactly_when_many_coordinators_believe_they_own_the_shard(
    jetstream: JetStreamContext, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("countless.server.storage.commit.COMMIT_INTERVAL_S", 0.0)
    game = Game(jetstream, SeededRandom(seed))
    await game.start()
    for _ in range(40):
        await game.step()
        assert game.spent <= LIMIT, f"seed {seed}"
    await game.spend_the_rest()
    await game.stop()
    assert (game.spent, game.fenced > 0) == (LIMIT, True), f"seed {seed}"
