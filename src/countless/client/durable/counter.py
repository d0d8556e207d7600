"""A counter that survives its process, and what a process that ended has left of one."""

from itertools import count
from threading import RLock

from countless.client.durable.count_file import CountFile
from countless.client.durable.record import MAX_COUNT, CounterRecord
from countless.client.fork_page import MAX_ITEMS
from countless.client.kinds.counter import CounterMember
from countless.client.local_counter import ALWAYS, NO_NUMBER, Deliver, LocalCounter
from countless.core.messages import DownMessage, SiteId, Snapshot, UpMessage
from countless.core.site import Site
from countless.wire.keys import Key


class DurableCounter(LocalCounter):
    """A counter that survives its process: events are in the file before they are reported."""

    __slots__ = ("_last_number", "_record", "_send")

    def __init__(self, site: Site, lock: RLock, deliver: Deliver, record: CounterRecord) -> None:
        super().__init__(site, lock, self._save_then_send)
        self._send = deliver
        self.bind(record)

    def _save_then_send(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self._record.save_state(site)
        self._send(site, messages)

    def bind(self, record: CounterRecord) -> None:
        """Count in this record, whose count is 0, from now on."""
        self._record = record
        self.sequence = record.sequence(self._lock)
        self._last_number = record.unit_total + MAX_ITEMS  # of this sequence
        self._offset = -record.unit_total

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        messages = super().receive(message)
        self._record.save_state(self._site)
        return messages

    def _begin(self) -> None:
        """`bind` has done it."""

    def add_with_lock(self, n: int, number: int) -> bool:
        if number is NO_NUMBER:
            self._continue_sequence()
        return super().add_with_lock(n, number)

    def _continue_sequence(self) -> None:
        with self._lock:
            last = self._last_number
            if self.open and self._record.unit_total == last:  # otherwise another thread, or a handler, has done it
                following = self._record.sequence(self._lock)
                if self._last_number == last:  # nothing is called from here on, so that no handler comes in between
                    self.sequence, self._last_number = following, last + MAX_ITEMS

    def reset(self, site_id: SiteId, delivered: int | None) -> None:
        super().reset(site_id, delivered)
        self._record.rebase(self._record.batch_total - self._offset)

    def give_up(self) -> None:
        super().give_up()
        self.sequence = count(MAX_COUNT)  # without a page that is wiped the old one would go on, in the parent's file

    def close(self) -> Snapshot:
        try:
            return super().close()
        finally:
            self._record.close()
            self.sequence = count(MAX_COUNT)  # a late `add` must not change the file: the record may be used again

    def _read_after(self, n: int) -> int:
        """As in `LocalCounter`; but the last number is in the file, so that reading takes none."""
        self.threshold = ALWAYS
        if n:
            self._record.add(n)
            self._offset += n
        return self._record.unit_total + self._offset


class OrphanedCounter:
    """A counter of a process that has ended: it only leaves."""

    open = False

    def __init__(self, key: Key, record: CounterRecord) -> None:
        self.count = record.count
        self.announced = key.is_window  # a window without events was announced, or it were not there
        self._key = key
        self._record = record

    def rejoin_messages(self) -> tuple[Snapshot, tuple[UpMessage, ...]]:
        return self._record.snapshot(str(self._key)), self._record.resend(str(self._key))

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        return ()

    def reset(self, site_id: SiteId, delivered: int | None) -> None:
        self.count = 0 if delivered is None else max(0, self.count - delivered)
        self.announced = False
        self._record.rebase(self._record.lifetime_total - self.count)


def orphaned_counters(file: CountFile) -> list[CounterMember]:
    """They have only to leave."""
    return [CounterMember(key, OrphanedCounter(key, record)) for key, record in file.records(Key).items()]
