"""The coordinator's ASGI application: a single coordinator with its state on disk, or a member of a cluster."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from signal import SIGTERM, raise_signal

from starlette.applications import Starlette

from countless import __version__
from countless.errors import MissingExtra
from countless.server.audit import AuditLog
from countless.server.http.access.auth import SAVE_USES_S, Access, check_tokens
from countless.server.http.application import coordinator_app, set_state
from countless.server.http.history.history import Recorder
from countless.server.settings import STATE_FILE, Settings
from countless.server.site_server import SiteServer
from countless.server.storage.backup import end_restore, is_copy
from countless.server.storage.base import StoreError
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.timings import measure_lag

log = logging.getLogger("countless.app")

CHECKPOINT_S = 10.0
MAX_TICK_S = 1.0  # checking 10,000 sites for time-outs takes a few milliseconds


def build_app(settings: Settings) -> Starlette:
    """The application for these settings. It opens its state when it starts and closes it when it stops."""
    if settings.nats:
        require_nats()
        from countless.server.cluster.app import build_cluster_app

        return build_cluster_app(settings)
    return _single_coordinator(settings)


def require_nats() -> None:
    if find_spec("nats") is None:
        raise MissingExtra("nats-py", "nats")


def _single_coordinator(settings: Settings) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        path = Path(settings.state_dir) / STATE_FILE
        store = SqliteStore(path)
        restored = is_copy(path)
        # Tokens have a connection of their own: a request must not wait for a transaction or a checkpoint.
        tokens, checkpoints = SqliteStore(path), SqliteStore(path)
        server = SiteServer(store, replace(settings, after_restore=settings.after_restore or restored))
        recorder = Recorder(server)
        writer = ThreadPoolExecutor(1, "countless-audit")
        audit = AuditLog(path.parent, writer.submit)
        access = Access(tokens, settings.open)
        set_state(app, server, access, recorder, audit)
        audit.write("started", f"process {os.getpid()}", version=__version__)
        tasks = [asyncio.create_task(server.run()), asyncio.create_task(_tick(server))]
        for task in tasks:
            task.add_done_callback(partial(_stop_on_failure, server))
        tasks += [asyncio.create_task(recorder.run()), asyncio.create_task(_checkpoint(checkpoints))]
        tasks.append(asyncio.create_task(measure_lag(app.state.loop_lag)))
        tasks += [asyncio.create_task(check_tokens(access)), asyncio.create_task(_save_uses(access, path))]
        if restored:
            tasks.append(asyncio.create_task(end_of_restore(server, path)))
        try:
            yield
        finally:
            server.drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            try:
                await server.stop()
            finally:
                audit.write("stopped", f"process {os.getpid()}", failing=server.failing or "")
                writer.shutdown(wait=False)
                for each in (tokens, checkpoints, store):
                    each.close()
                _note_uses(path, access.take_uses())

    return coordinator_app(lifespan)


def _stop_on_failure(server: SiteServer, task: "asyncio.Task[None]") -> None:
    """End the process: a coordinator whose loop has failed must not pass its probes. A restart recovers from disk."""
    if not task.cancelled() and task.exception() is not None:
        server.health.failing = f"failed: {task.exception()}"
        log.critical("background task failed, stopping: please report this", exc_info=task.exception())
        raise_signal(SIGTERM)


async def _tick(server: SiteServer) -> None:
    while True:
        await asyncio.sleep(min(MAX_TICK_S, server.settings.silent_after / 4))
        for _ in server.tick_in_slices():
            await asyncio.sleep(0)


async def end_of_restore(server: SiteServer, path: Path) -> None:
    """Save that the state is not a copy any more, when the restore is over and the disk has room."""
    failed = False
    while True:
        if not server.budgets.restoring:
            try:
                return await asyncio.to_thread(end_restore, path)
            except StoreError as error:
                if not failed:
                    log.warning("end of the restore not saved, the next start would begin it again: error=%s", error)
                failed = True
        await asyncio.sleep(MAX_TICK_S)


async def _checkpoint(store: SqliteStore) -> None:
    while True:
        await asyncio.sleep(CHECKPOINT_S)
        try:
            await asyncio.to_thread(store.checkpoint)
        except sqlite3.Error:  # a full disk: the next save reports it
            log.info("checkpoint of the state file failed", exc_info=True)


async def _save_uses(access: Access, path: Path) -> None:
    while True:
        await asyncio.sleep(SAVE_USES_S)
        await asyncio.to_thread(_note_uses, path, access.take_uses())


def _note_uses(path: Path, uses: dict[bytes, int]) -> None:
    """With a connection of its own: it may wait for the writer, and requests must not."""
    try:
        if uses:
            with closing(SqliteStore(path)) as store:
                store.note_uses(uses)
    except (sqlite3.Error, StoreError):
        log.info("last use of tokens not saved", exc_info=True)
