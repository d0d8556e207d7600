"""The application of one coordinator among many: `countless serve --nats nats://...`."""

import asyncio
from collections import ChainMap
from collections import Counter as Tally
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from starlette.applications import Starlette
from starlette.routing import Mount

from countless.core.messages import SiteId
from countless.server.cluster.member import Member
from countless.server.cluster.router import Front, PassedOn
from countless.server.http.application import member_app, shard_app
from countless.server.http.auth import Access
from countless.server.http.history import Recorder
from countless.server.sessions.counter import Counter
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.site_server import SiteServer
from countless.server.settings import Settings


class LivesTogether:
    """Of several shards: a life is there once for each."""

    def __init__(self, parts: list[SessionTable]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Session]:
        return (life for lives in self._parts for life in lives)

    def get(self, site_id: SiteId) -> Session | None:
        """Where it was heard last: the page shows it once."""
        found = [life for lives in self._parts if (life := lives.get(site_id)) is not None]
        return max(found, key=Session.last_seen, default=None)


class Together:
    """All that this coordinator has, as probes and metrics want to see it: like one host."""

    def __init__(self, member: Member, settings: Settings) -> None:
        self.settings = settings
        self.dropped: Tally[str] = Tally()
        self._member = member

    @property
    def _hosts(self) -> list[SiteServer]:
        return [shard.host for shard in self._member.shards.values()]

    @property
    def counters(self) -> Mapping[str, Counter]:
        """Of all our shards; whoever looks at a few of them need not wait for all."""
        return ChainMap(*(host.counters for host in self._hosts))

    @property
    def sessions(self) -> "LivesTogether":
        """Of all our shards."""
        return LivesTogether([host.sessions for host in self._hosts])

    @property
    def overflowed(self) -> Tally[str]:
        return sum((host.overflowed for host in self._hosts), Tally())

    @property
    def frame_bytes(self) -> Tally[str]:
        """Of all our shards."""
        return sum((host.frame_bytes for host in self._hosts), Tally(up=0, down=0))

    @property
    def draining(self) -> bool:
        """Going down."""
        return self._member.draining

    @property
    def failing(self) -> str | None:
        """Why nothing can be saved at present, if so."""
        if not self._member.leased():
            return "the lease has run out: the broker does not answer"
        return self._member.failing or next((host.failing for host in self._hosts if host.failing), None)

    def now(self) -> float:
        """The clock of all our hosts."""
        return monotonic()

    def drain(self) -> None:
        """Nobody new comes in."""
        self._member.drain()


def build_cluster_app(settings: Settings) -> Starlette:
    """The application of one of many coordinators."""
    member = Member(settings, lambda host: shard_app(host, PassedOn()))
    together = Together(member, settings)
    recorder = Recorder(together)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await member.join()
        beating = asyncio.create_task(member.run())
        beating.add_done_callback(member.look)
        recording = asyncio.create_task(recorder.run())
        try:
            yield
        finally:
            member.drain()
            beating.cancel()
            recording.cancel()
            await asyncio.gather(beating, recording, return_exceptions=True)
            await member.leave()

    access = Access(member.tokens)
    front = Front(member, access, member_app(together, access, recorder))
    app = Starlette(routes=[Mount("/", front)], lifespan=lifespan)
    app.state.server = together
    return app
