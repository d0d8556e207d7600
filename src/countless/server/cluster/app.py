"""The application of one coordinator of a cluster: `countless serve --nats nats://...`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from countless.server.cluster.broker import end_tasks
from countless.server.cluster.forwarding import ForwardedAuth
from countless.server.cluster.member import ClusterMember
from countless.server.cluster.merged_shards import MergedShards
from countless.server.cluster.router import MEMBER_OPERATIONS, SHARD_OPERATIONS
from countless.server.http.access.auth import SAVE_USES_S, Access, check_tokens
from countless.server.http.application import member_app, set_state, shard_app
from countless.server.http.history.history import Recorder
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.timings import measure_lag


def build_cluster_app(settings: Settings) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        def app_for(server: SiteServer) -> Starlette:
            return shard_app(server, ForwardedAuth(), SHARD_OPERATIONS, recorder)

        member = await ClusterMember.join(settings, app_for)
        shards = MergedShards(member, settings)
        recorder = Recorder(shards)
        access = Access(member.tokens, settings.open)
        set_state(app, shards, access, recorder)
        app.state.member = member
        tasks = [asyncio.create_task(member.run()), asyncio.create_task(recorder.run())]
        tasks.append(asyncio.create_task(measure_lag(app.state.loop_lag)))
        tasks += [asyncio.create_task(check_tokens(access)), asyncio.create_task(_save_uses(member, access))]
        try:
            yield
        finally:
            member.drain()
            await end_tasks(tasks)
            await member.leave()

    return member_app(MEMBER_OPERATIONS, lifespan)


async def _save_uses(member: ClusterMember, access: Access) -> None:
    while True:
        await asyncio.sleep(SAVE_USES_S)
        if uses := access.take_uses():
            await member.note_uses(uses)
