"""The commit pipeline: changes are saved, then answers are published, then messages are sent. Always in this order.

The site server passes inputs to the core at once and says here what they changed. While the store writes one batch in
its own thread, the next batch collects: under load hundreds of inputs share a save, and an input waits for at most two.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from countless.core.messages import SiteId
from countless.server.connection import Connection
from countless.server.storage.base import StoreError
from countless.server.storage.health import SaveHealth
from countless.server.storage.rows import Changes, Dropped, Publish, Saved, StateStore, Stored, Tombstone
from countless.wire.frames import DownItem
from countless.wire.keys import Key

log = logging.getLogger("countless.commit")

COMMIT_INTERVAL_S = 0.005  # between two saves: a save costs as much as a hundred reports
SENDS_PER_YIELD = 100  # connections that are sent to before the loop does other work: some milliseconds
MAX_QUEUED_ITEMS = 100_000  # for one connection, several times the counters that it can have
RETRY_S = 1.0  # after a failed save
FAILURE_CHECK_S = 0.2  # while a request waits for a save
MAX_FINAL_ATTEMPTS = 5  # to save what is left when the server stops: service managers kill after 10 s or more

Outgoing = dict[Connection, list[DownItem]]


class Batch(NamedTuple):
    """Saved, then published, then sent."""

    changes: Changes
    publications: list[Publish]
    outgoing: Outgoing
    flushed: asyncio.Event  # set when it has been sent


class CommitPipeline:
    """Belongs to the loop's thread; only `StateStore.save` runs in another."""

    def __init__(self, store: StateStore, health: SaveHealth | None = None) -> None:
        self.health = health or SaveHealth()
        self._work = asyncio.Event()
        self._store = store
        self._changed: dict[Saved, None] = {}  # since the last batch was taken
        self._changes = Changes()  # of the next batch, but for the rows of what has changed
        self._outgoing: Outgoing = {}
        self._unsaved: Batch | None = None  # the batch that is being saved; kept if that is cancelled or fails
        self._ready: asyncio.Queue[Batch] = asyncio.Queue()  # saved, to be sent
        self._flushed = asyncio.Event()  # set when the batch that collects now has been sent
        self._writer = ThreadPoolExecutor(1, "countless-commit")

    # What the next batch saves

    def changed(self, saved: Saved) -> None:
        """Its rows are part of the next batch. They are read when that is taken, so that any number of changes is saved
        once.
        """
        if saved not in self._changed:
            self._changed[saved] = None
            self._work.set()

    def forget(self, saved: Saved) -> None:
        """It is not saved any more, nor what has changed of it so far."""
        self._changed.pop(saved, None)

    def remove(self, saved: Stored) -> None:
        """As `forget`, and all rows that it has in the store."""
        self.forget(saved)
        self.drop(saved.key)

    def drop(self, key: Key, site_id: SiteId | None = None) -> None:
        """All rows that the key, or this site of it, has in the store."""
        self._changes.dropped.append(Dropped(key, site_id))
        self._work.set()

    def forget_tombstones(self, *keys: Key) -> None:
        self._changes.forgotten += keys
        self._changes.tombstones = [each for each in self._changes.tombstones if each.key not in keys]
        self._work.set()

    def add_tombstones(self, *tombstones: Tombstone) -> None:
        self._changes.tombstones += tombstones
        self._work.set()

    def prune_tombstones(self, before: int) -> None:
        self._changes.prune_before = before
        self._work.set()

    # What the next batch sends

    def send(self, connection: Connection, item: DownItem) -> None:
        """Queue an item that may leave once everything marked so far is saved.

        Each `SyncAck` leaves by itself: sites count them, to know which `Sync` was answered last.
        """
        items = self._outgoing.setdefault(connection, [])
        items.append(item)
        if len(items) > MAX_QUEUED_ITEMS:  # nothing can be saved, and the site goes on sending requests
            items.clear()
            connection.close(1008, "too many items queued while the state cannot be saved")
        self._work.set()

    def discard(self, connection: Connection) -> None:
        """Drop what is queued for a connection that was lost."""
        self._outgoing.pop(connection, None)

    def debug_state(self) -> dict[str, int]:
        return {
            "changed": len(self._changed),
            "queued_items": sum(map(len, self._outgoing.values())),
        }

    # Saving and sending

    async def run(self) -> None:
        """Until cancelled. Sending to thousands of sites takes a while, so the next save does not wait for it."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._save_batches())
                group.create_task(self._send_batches())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the owner distinguishes a fenced store from a bug

    async def _save_batches(self) -> None:
        loop, next_save = asyncio.get_running_loop(), 0.0
        while True:
            if not self._work.is_set():
                await self._work.wait()
                self.health.first_change()
            await asyncio.sleep(next_save - loop.time())
            self._work.clear()
            await self._save()
            next_save = loop.time() + COMMIT_INTERVAL_S

    async def _send_batches(self) -> None:
        while True:
            await self._send_batch(await self._ready.get())

    async def _send_batch(self, batch: Batch) -> None:
        await _send(batch.outgoing)
        batch.flushed.set()

    async def flush(self) -> None:
        """Wait until everything marked and queued so far is saved, published and sent."""
        flushed = self._flushed
        self._work.set()
        await flushed.wait()

    async def require_saved(self) -> None:
        """As `flush`. Raises StoreError when a save fails: the changes stay queued, and are saved when that works."""
        flushed = asyncio.ensure_future(self.flush())
        try:
            while not (await asyncio.wait([flushed], timeout=FAILURE_CHECK_S))[0]:
                if self.health.failing is not None:
                    raise StoreError(f"the state cannot be saved at present: {self.health.failing}")
        finally:
            flushed.cancel()

    async def stop(self) -> None:
        """Save and send what is left. `run` must have been cancelled before.

        If that fails again and again, log it and return. The changes are in the file completely or not at all, and no
        site was sent an acknowledgement of them: it sends its counts again after the restart.
        """
        try:
            if self._unsaved is not None:  # `run` was cancelled while it was being saved
                await self._save(MAX_FINAL_ATTEMPTS)
            await self._save(MAX_FINAL_ATTEMPTS)
        except StoreError as error:
            log.critical("final save failed, unsaved changes dropped: attempts=%d error=%s", MAX_FINAL_ATTEMPTS, error)
        while not self._ready.empty():
            await self._send_batch(self._ready.get_nowait())
        await asyncio.to_thread(self._writer.shutdown)  # a save that is under way may need this loop

    async def _save(self, max_attempts: int | None = None) -> None:
        """Save the batch, again and again until that succeeds, publish its answers and queue what it sends.

        A batch is saved before the next is taken: a site's departure without its tombstone would count it twice.
        """
        if self._unsaved is None:
            self._unsaved = self._take_batch()
            self.health.begin()
        batch = self._unsaved
        if batch.changes:
            await self._write(batch.changes, max_attempts)
        self._unsaved = None
        self.health.done()
        for publish in batch.publications:
            publish()
        self._ready.put_nowait(batch)

    async def _write(self, changes: Changes, max_attempts: int | None) -> None:
        attempts, loop = 0, asyncio.get_running_loop()
        while True:
            try:
                began = loop.time()
                await loop.run_in_executor(self._writer, self._store.save, changes)
                self.health.save_seconds.observe(loop.time() - began)
                if self.health.failing is not None:
                    log.warning("save succeeded, answers are published again: failures=%d", attempts)
                break
            except StoreError as error:
                if self.health.failing is None:
                    log.error("answers frozen, save retried every second: error=%s", error)  # noqa: TRY400 - one line
                self.health.fail(str(error))
                attempts += 1
                if attempts == max_attempts:
                    raise
            await asyncio.sleep(RETRY_S)

    def _take_batch(self) -> Batch:
        changes, publications = self._take_changes()
        outgoing, self._outgoing = self._outgoing, {}
        flushed, self._flushed = self._flushed, asyncio.Event()
        return Batch(changes, publications, outgoing, flushed)

    def _take_changes(self) -> tuple[Changes, list[Publish]]:
        """A counter with windows comes after its windows, because what it publishes is their sum."""
        changes, self._changes = self._changes, Changes()
        changed, self._changed = self._changed, {}
        wholes = {each.part_of: None for each in changed if each.part_of is not None}
        for whole in wholes:
            changed.pop(whole, None)
        publications = []
        for saved in (*changed, *wholes):
            publish = saved.take(changes.rows)
            if publish is not None:
                publications.append(publish)
        return changes, publications


async def _send(outgoing: Outgoing) -> None:
    for number, (connection, items) in enumerate(outgoing.items(), start=1):
        connection.send(items)
        if number % SENDS_PER_YIELD == 0:
            await asyncio.sleep(0)
