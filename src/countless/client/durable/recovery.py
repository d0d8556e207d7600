"""Delivering the counts, and handing in the budgets, that processes which ended have left in a state directory.

If a file can be locked, its process has ended. We reconnect with its identity and send, for each counter, the round and
the exact count that the file has, as the process would have done on closing its client. Counts are cumulative, so a
duplicate is harmless. If the coordinator has retired that incarnation already, it answers with the counts it knows; the
rest is delivered by a new incarnation, which is in the file before any of it is sent. At every instant the file
contains everything that may not have been delivered.

For a budget we hand in what the file says was spent and held. The coordinator takes that once for each incarnation, and
then the rest of its limit is free again; after the acknowledgement the record is free, too.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event, RLock, Thread

from countless.client.budgets.requests import PeriodRefusal
from countless.client.durable.budget import orphaned_budgets
from countless.client.durable.count_file import SUFFIX, CountFile
from countless.client.durable.counter import orphaned_counters
from countless.client.durable.family import orphaned_families
from countless.client.durable.word_file import StateError
from countless.client.kinds.member import AnyMember
from countless.client.session.loop import ClientLoop
from countless.client.session.protocol import Origin
from countless.client.session.reconnect import Backoff
from countless.client.surroundings import REAL, ClientSurroundings
from countless.client.transport.base import ConnectionLost, Transport
from countless.core.messages import SiteId
from countless.errors import CounterRefused
from countless.randomness import SYSTEM_RANDOM

log = logging.getLogger("countless")


class OrphanDelivery:
    """One attempt to deliver one file: its loop ends at the first error."""

    def __init__(
        self,
        file: CountFile,
        transport: Transport,
        surroundings: ClientSurroundings = REAL,
        sharded: bool = False,
    ) -> None:
        found: list[AnyMember] = [*orphaned_counters(file), *orphaned_families(file)]
        members, budgets = {member.key: member for member in found}, orphaned_budgets(file)
        self.needed = bool(budgets) or any(member.active for member in members.values())
        self._file = file
        self._sharded = sharded
        self._error: str | None = None
        self.loop = ClientLoop(
            site_id=file.site_id,
            members=members,
            lock=RLock(),
            transport=transport,
            on_status=self._on_status,
            new_incarnation=self._new_incarnation,
            budgets=budgets,
            surroundings=surroundings,
            incarnations=file.incarnations if sharded else {},
            origin=Origin.INHERITED,
        )

    def _on_status(self, error: str | None) -> None:
        if error is not None and self._error is None:
            self._error = error
            self.loop.stop()

    def _new_incarnation(self, site_id: SiteId, shard: int) -> AbstractContextManager[None]:
        return self._file.new_incarnation(site_id.incarnation, shard if self._sharded else None)

    def finish(self) -> None:
        """Delete the file, unless something of it was not delivered."""
        if self.loop.undeliverable:
            raise StateError(f"{self._file.path}: {self._error}")
        if self._error is not None:
            raise ConnectionLost(self._error)
        if self.needed and not self.loop.delivered:
            raise StateError(f"{self._file.path}: {CounterRefused(self.loop.rejected)}")
        self._file.delete()


class OrphanRecovery:
    """A thread that runs until every file of the directory is delivered or abandoned."""

    def __init__(
        self, directory: Path, open_transport: Callable[[str], Transport], lock: RLock, sharded: bool = False
    ) -> None:
        self.refusals: dict[str, PeriodRefusal] = {}  # by budget: what the processes that ended were told last
        self._directory = directory
        self._sharded = sharded
        self._open_transport = open_transport
        self._lock = lock  # held around a fork, when everything that is open must be known
        self._abandoned: set[Path] = set()
        self._closing = Event()  # the program waits, so attempts follow each other soon
        self._stopped = Event()
        self._ended = Event()
        self._file: CountFile | None = None
        self._loop: ClientLoop | None = None
        self._thread = Thread(target=self._run, name="countless-recovery", daemon=True)

    def start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is shutting down: the next process will deliver
            self._ended.set()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self, timeout: float) -> bool:
        """Wait until every file is delivered or abandoned; then open no more, because the next may be one that this
        client releases. False: that took too long, and what is left is for the next process.
        """
        self._closing.set()
        ended = self._ended.wait(timeout)
        with self._lock:
            self._stopped.set()
            if self._loop is not None:
                self._loop.stop()
        return ended

    def abandon(self) -> None:
        """In a forked child, where the thread does not exist: close what it had open, and send nothing."""
        if self._loop is not None:
            self._loop.abandon()
        if self._file is not None:
            self._file.release()

    def _run(self) -> None:
        backoff = Backoff(SYSTEM_RANDOM)
        try:
            while not self._stopped.is_set() and not self._try_all():
                self._pause(backoff)
        finally:
            self._ended.set()

    def _pause(self, backoff: Backoff) -> None:
        if self._closing.is_set():
            self._stopped.wait(backoff.next(waited_for=True))
        else:
            self._closing.wait(backoff.next())

    def _try_all(self) -> bool:
        """False: there are files that are worth another attempt."""
        try:
            paths = set(self._directory.glob(f"*{SUFFIX}")) - self._abandoned
        except OSError:  # the directory does not exist any more
            return True
        return not [path for path in sorted(paths) if not self._try(path)]

    def _try(self, path: Path) -> bool:
        try:
            with self._lock:
                file = self._file = None if self._stopped.is_set() else CountFile.open_orphan(path)
            if file is not None:
                self._deliver(file)
        except ConnectionLost as error:
            log.info("orphaned counts in %s not delivered yet: %s", path, error)
            return False
        except (StateError, OSError) as error:
            log.warning("orphaned counts abandoned, file kept: error=%s", error)
            self._abandoned.add(path)
        finally:
            with self._lock:
                if self._file is not None:
                    self._file.release()
                    self._file = None
        return True

    def _deliver(self, file: CountFile) -> None:
        for record in file.budgets:
            refusal, known = record.refusal, self.refusals.get(record.name)
            if refusal is not None and (known is None or refusal.ends_at >= known.ends_at):
                self.refusals[record.name] = refusal
        delivery = OrphanDelivery(file, self._open_transport(str(file.site_id.site)), sharded=self._sharded)
        if delivery.needed:
            with self._lock:
                delivery.loop.open()
                self._loop = delivery.loop
            try:
                delivery.loop.leave()
                if self._stopped.is_set():
                    delivery.loop.stop()
                delivery.loop.run()
            finally:
                with self._lock:
                    self._loop = None
            if self._stopped.is_set():
                raise ConnectionLost("the client was closed")
        delivery.finish()
