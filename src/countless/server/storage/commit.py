"""The post: what an input changed is saved, then what it caused is shown and sent. In this order, always.

Inputs go to the core at once; their consequences collect here. While one transaction is written, in the disk's own
thread, the next one collects: under load hundreds of inputs share a commit, and nobody waits for more than two of them.
"""

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor

from countless.core.answer import Answer
from countless.core.messages import SiteId
from countless.server.sessions.counter import Counter
from countless.server.sessions.session_table import Connection
from countless.server.storage.base import Changes, Config, MembershipKey, StateStore, StoreError
from countless.wire.frames import DownItem, SyncAck

log = logging.getLogger("countless.post")

Outgoing = dict[Connection, list[DownItem]]

COMMIT_INTERVAL_S = 0.005  # seconds from one delivery to the next: a commit costs as much as a hundred reports
SENDS_PER_YIELD = 100  # frames sent before others have their turn: some milliseconds
MAX_QUEUED_ITEMS = 100_000  # items for one site, to be saved or to be sent: more than it has counters, several times


class CommitPipeline:
    """Belongs to the loop's thread; only the saving itself is done elsewhere."""

    def __init__(self, store: StateStore, counters: dict[str, Counter]) -> None:
        self.failing: str | None = None  # why nothing can be saved at present
        self._store = store
        self._counters = counters
        self._changes = Changes()
        self._dirty: dict[str, set[SiteId]] = {}  # by counter: sites of which more may be known
        self._touched: set[str] = set()
        self._outgoing: Outgoing = {}
        self._ready: asyncio.Queue[tuple[Outgoing, asyncio.Event]] = asyncio.Queue()  # saved, and to be sent
        self._work = asyncio.Event()
        self._flushed = asyncio.Event()
        self._writer = ThreadPoolExecutor(1, "countless-disk")

    # What has happened

    def mark_counter(self, name: str) -> None:
        """A counter may have another round or another answer."""
        self._touched.add(name)
        self._work.set()

    def mark_site(self, name: str, site_id: SiteId) -> None:
        """More may be known of a site, and so the counter may have another answer."""
        seats = self._dirty.get(name)
        if seats is None:
            self._dirty[name] = {site_id}
            self._work.set()
        else:
            seats.add(site_id)

    def mark_config(self, name: str, config: Config) -> None:
        """A counter is new, or has other rules."""
        self._changes.configs[name] = config
        self.mark_counter(name)

    def mark_departed(self, seat: MembershipKey, said: MembershipKey, known: int) -> None:
        """A seat is empty; what its life, by the name it used itself, had brought there."""
        name, site_id = seat
        self._changes.tombstones[said] = known
        self._changes.counts.setdefault(name, {})[site_id] = None
        self._dirty.get(name, set()).discard(site_id)

    def prune(self, before: int) -> None:
        """Lives that ended before this second need not be remembered any longer."""
        self._changes.prune_before = before
        self._work.set()

    def mark_deleted(self, name: str) -> None:
        """A counter is no more."""
        self._changes.deleted.append(name)
        self._changes.configs.pop(name, None)
        self._changes.tombstones = {key: known for key, known in self._changes.tombstones.items() if key[0] != name}
        self._changes.counts.pop(name, None)
        self._dirty.pop(name, None)
        self._work.set()

    def send(self, connection: Connection, item: DownItem) -> None:
        """To be sent, once all that has happened so far is saved."""
        items = self._outgoing.setdefault(connection, [])
        if items and isinstance(item, SyncAck) and isinstance(items[-1], SyncAck):
            items[-1] = item  # it says all that the one before it says
        else:
            items.append(item)
        if len(items) > MAX_QUEUED_ITEMS:  # nothing can be saved, and it goes on asking
            items.clear()
            connection.close(1008, "asks more than can be answered at present")
        self._work.set()

    def discard(self, connection: Connection) -> None:
        """Nobody is there to send it to."""
        self._outgoing.pop(connection, None)

    # The loop

    async def run(self) -> None:
        """Save and send, until cancelled. A round that starts is thousands of frames: the next save need not wait."""
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._save_all())
                both.create_task(self._send_all())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # itself, not in a group: the owner tells a Deposed from a bug

    async def _save_all(self) -> None:
        loop, rested = asyncio.get_running_loop(), 0.0
        while True:
            await self._work.wait()
            await asyncio.sleep(rested - loop.time())
            self._work.clear()
            flushed, self._flushed = self._flushed, asyncio.Event()
            self._ready.put_nowait((await self._save(), flushed))
            rested = loop.time() + COMMIT_INTERVAL_S

    async def _send_all(self) -> None:
        while True:
            outgoing, flushed = await self._ready.get()
            await _send(outgoing)
            flushed.set()

    async def flush(self) -> None:
        """Wait until everything that has happened so far is on the disk and can be seen."""
        flushed = self._flushed
        self._work.set()
        await flushed.wait()

    async def stop(self) -> None:
        """The last delivery."""
        self._ready.put_nowait((await self._save(), asyncio.Event()))
        while not self._ready.empty():
            await _send(self._ready.get_nowait()[0])
        await asyncio.to_thread(self._writer.shutdown)  # a save that is under way may need this loop

    async def _save(self) -> Outgoing:
        """Save and show; what may be sent now."""
        changes, answers = self._take()
        outgoing, self._outgoing = self._outgoing, {}
        while changes:
            try:
                await asyncio.get_running_loop().run_in_executor(self._writer, self._store.save, changes)
                self.failing = None
                break
            except (sqlite3.Error, StoreError) as error:  # a full disk, or the broker is away
                if self.failing is None:
                    log.exception("cannot save the state; nothing is sent until it can be saved")
                self.failing = str(error)
                await asyncio.sleep(1)
        for counter, answer in answers:
            counter.publish(answer)
        return outgoing

    def _take(self) -> tuple[Changes, list[tuple[Counter, Answer]]]:
        changes, self._changes = self._changes, Changes()
        answers = []
        for name in (self._touched | self._dirty.keys()) & self._counters.keys():
            counter = self._counters[name]
            changes.counters[name] = counter.fields
            answers.append((counter, counter.coordinator.answer))
        for name, seats in self._dirty.items():
            known_of = self._counters[name].coordinator.reported_by
            changes.counts.setdefault(name, {}).update((site_id, known_of(site_id)) for site_id in seats)
        self._dirty.clear()
        self._touched.clear()
        return changes, answers


async def _send(outgoing: Outgoing) -> None:
    for number, (connection, items) in enumerate(outgoing.items(), start=1):
        connection.send(items)
        if number % SENDS_PER_YIELD == 0:
            await asyncio.sleep(0)
