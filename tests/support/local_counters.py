"""Local counters whose messages are recorded or discarded, and threads that start together."""

from collections.abc import Callable
from threading import Barrier, RLock, Thread
from typing import Any

from countless.client.client import Client
from countless.client.durable.count_file import CountFile
from countless.client.durable.counter import DurableCounter
from countless.client.durable.record import CounterRecord
from countless.client.local_counter import LocalCounter
from countless.core.messages import SiteId, UpMessage
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.wire.keys import COUNTER, Key
from support.rng import NO_RANDOM
from support.service import TIMEOUT_S

HITS = "hits"


def unreported(site: Site) -> LocalCounter:
    """A local counter whose messages are discarded."""
    return LocalCounter(site, RLock(), lambda site, messages: None)


class RecordingCounter:
    """A local counter of one kind ("plain", "durable", "locked"), and the messages it has sent."""

    def __init__(self, kind: str, trigger: Trigger | None = None, lock: Any = None) -> None:
        self.sent: list[UpMessage] = []
        self.site = Site(HITS, SiteId("s"), NO_RANDOM, trigger=trigger)
        self.lock: RLock = lock or RLock()
        self.record: CounterRecord | None = None
        if kind == "plain":
            self.counter = LocalCounter(self.site, self.lock, self._deliver)
        else:
            self.record = CountFile.in_memory(self.site.site_id).allocate(Key(COUNTER, HITS))
            self.counter = DurableCounter(self.site, self.lock, self._deliver, self.record)

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.sent += messages


def together(*jobs: Callable[[], None]) -> None:
    """Run the jobs in one thread each, all at the same time; a job's exception is the test's."""
    barrier, failures = Barrier(len(jobs)), list[BaseException]()

    def run(job: Callable[[], None]) -> None:
        barrier.wait(TIMEOUT_S)
        try:
            job()
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        if thread.is_alive():
            raise AssertionError(f"a thread is still running after {TIMEOUT_S:.0f} seconds")
    if failures:
        raise failures[0]


def counts_of(client: Client) -> dict[str, int]:
    """What its counters and their windows have counted in this process, by the texts of their keys."""
    with client._lock:
        return {str(key): counter.count for key, counter in client._local_counters.items()}
