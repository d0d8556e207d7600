"""The client's `state_dir`: the file of the present incarnation, and what is made to be in it."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from threading import RLock

from countless.client import forks
from countless.client.budgets.local_budget import LocalBudget
from countless.client.budgets.requests import PeriodRefusal
from countless.client.durable.budget import DurableBudget
from countless.client.durable.count_file import CountFile
from countless.client.durable.counter import DurableCounter
from countless.client.durable.family import FamilyRecords
from countless.client.durable.recovery import OrphanRecovery
from countless.client.durable.word_file import StateError
from countless.client.local_counter import Deliver, LocalCounter
from countless.client.transport.base import Transport
from countless.core.budget.site import BudgetSite
from countless.core.family.rule import FamilyRule
from countless.core.messages import SiteId
from countless.core.site import Site
from countless.wire.keys import Key

log = logging.getLogger("countless")


class DurableState:
    """The file of the client's present incarnation, and the recovery of what other processes have left beside it."""

    files = CountFile

    def __init__(
        self,
        directory: Path,
        site_id: SiteId,
        open_transport: Callable[[str], Transport],
        lock: RLock,
        sharded: bool = False,
    ) -> None:
        self._directory = directory
        self._sharded = sharded  # there are shards, and each may retire the incarnation on its own
        self._open_transport = open_transport
        self._lock = lock
        self._file = self.files.create(directory, site_id)
        self._recovery: OrphanRecovery | None = None
        self.start_recovery()

    def start_recovery(self) -> None:
        """Deliver orphaned counts in the background, once in each process; in workers of uWSGI, not in its master."""
        if self._recovery is None and not forks.in_uwsgi_master():
            self._recovery = OrphanRecovery(self._directory, self._open_transport, self._lock, self._sharded)
            self._recovery.start()

    def counter(self, key: Key, site: Site, lock: RLock, deliver: Deliver) -> LocalCounter:
        return DurableCounter(site, lock, deliver, self._file.allocate(key))

    def remove_counter(self, key: Key) -> None:
        """It is closed, and its count delivered."""
        self._file.free(key)

    def budget(self, site: BudgetSite, site_id: SiteId) -> LocalBudget:
        return DurableBudget(site, site_id.incarnation, self._file)

    def refusal(self, budget: str) -> PeriodRefusal | None:
        """The newest that processes which have ended left of this budget."""
        return None if self._recovery is None else self._recovery.refusals.get(budget)

    def family(self, key: Key, rule: FamilyRule) -> FamilyRecords:
        return FamilyRecords(key, rule, self._file)

    def after_fork(self, site_id: SiteId, counters: Mapping[Key, LocalCounter]) -> None:
        """In the child: an empty file of its own."""
        self.leave_to_parent()
        try:
            self._file = self.files.create(self._directory, site_id)
        except StateError as error:  # not a reason for a fork to fail
            log.warning("state_dir unusable after a fork, counts kept in memory only: error=%s", error)
            self._file = self.files.in_memory(site_id)
        for key, counter in counters.items():
            if isinstance(counter, DurableCounter):
                counter.bind(self._file.allocate(key))

    def leave_to_parent(self) -> None:
        """In a child: the file and its lock are the parent's, and so is what it recovers."""
        self._file.release()
        if self._recovery is not None:
            self._recovery.abandon()
            self._recovery = None

    def new_incarnation(self, incarnation: int, shard: int = 0) -> AbstractContextManager[None]:
        """While the context lasts, every counter of the shard must be reset. All of it takes effect when it ends."""
        return self._file.new_incarnation(incarnation, shard if self._sharded else None)

    def debug_state(self) -> dict[str, object]:
        """The file of the present incarnation (None: in memory), and whether the recovery is running: for tests."""
        return {"path": self._file.path, "recovering": self._recovery is not None and self._recovery.running}

    def close(self, delivered: bool, timeout: float) -> bool:
        """Nothing more is counted. What was not delivered stays in the file for the next process. Returns whether
        nothing stays in the directory of what this process had to deliver.
        """
        recovered = self._recovery is None or self._recovery.stop(max(0.0, timeout))
        if delivered:
            self._file.delete()
        else:
            self._file.release()
        return delivered and recovered
