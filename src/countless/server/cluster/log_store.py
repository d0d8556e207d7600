"""The state of one shard: a log in JetStream, and a replica of it in memory.

Every save appends a record to the shard's subject, together with the sequence number that the last message on this
subject must have (`Nats-Expected-Last-Subject-Sequence`); JetStream rejects the append otherwise. This is the fencing:

1. The new owner reads the log to its end and appends a record of its own. If that is rejected, it reads on.
2. From then on the last message is one that the previous owner does not know, so all its appends are rejected.
3. A coordinator saves before it sends, so the previous owner sends nothing that the new owner has not read.

A record that is too large for one message has several parts, and is applied when the last part has been read. From
time to time the whole state is written as one record, and older records are purged.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from time import time
from typing import Any, TypeVar

import msgspec
from nats.js import JetStreamContext
from nats.js.api import Header
from nats.js.errors import APIError, NotFoundError

from countless.core.messages import SiteId
from countless.errors import CountlessError
from countless.server.cluster.broker import BROKER_ERRORS, JETSTREAM_TIMEOUT_S, LOG_STREAM
from countless.server.cluster.records import Body, Record, decode_body, decode_record, split
from countless.server.storage.base import StoreError
from countless.server.storage.memory_store import MemoryStore
from countless.server.storage.rows import Changes, KeyRows, Tombstone, decode, encode
from countless.wire.keys import Key
from countless.wire.nats_subjects import log_subject

T = TypeVar("T")
_WRONG_LAST_SEQUENCE = (10071, 10164)  # error codes of JetStream
_MAX_TAKE_OVER_ATTEMPTS = 20  # the previous owner has lost its lease, so it soon stops writing


class Fenced(CountlessError):
    """Another coordinator has appended to this shard's log, and owns the shard now."""


class BrokerUnavailable(StoreError):
    """Nothing can be saved at present; the save may be tried again."""


class LogStore:
    """Implements `StateStore`. Use `take_over` first. `save` must not be called in the event loop's thread."""

    part_bytes = 1 << 18  # a quarter of a broker's default limit for a message
    compact_after_messages = 1000  # reading them takes about a second

    def __init__(
        self,
        jetstream: JetStreamContext,
        shard: int,
        ownership_id: str,
        leased: Callable[[], bool],
        wall_clock: Callable[[], float] = time,
    ) -> None:
        self._jetstream = jetstream
        self._subject = log_subject(shard)
        self._ownership_id = ownership_id
        self._leased = leased
        self._wall_clock = wall_clock
        self._replica = MemoryStore()
        self._loop = asyncio.get_running_loop()
        self._last_sequence = 0
        self._messages = 0  # in the log since the last compaction
        self._bodies = 0  # written by this owner
        self._saving: tuple[Changes, int] | None = None  # changes that are being appended, and their second
        self._unsent: list[Record] = []  # not confirmed yet, in order
        self._parts_read: list[Record] = []

    # Taking over

    async def take_over(self) -> None:
        """Read the log and append an empty record: from now on appends of previous owners are rejected."""
        for _ in range(_MAX_TAKE_OVER_ATTEMPTS):
            await self._read_to_end()
            if not self._leased():  # another coordinator owns the shard, or soon will
                raise BrokerUnavailable("lease expired")
            [opening] = self._records(Body([]))
            with suppress(Fenced):  # the previous owner has appended once more
                return await self._append(opening)
        raise BrokerUnavailable("the previous owner appends faster than the log can be read")

    async def _read_to_end(self) -> None:
        while True:
            sequence = self._last_sequence + 1
            try:
                message = await self._jetstream.get_msg(LOG_STREAM, seq=sequence, subject=self._subject, next=True)
            except NotFoundError:
                return
            self._last_sequence = message.seq or 0
            self._messages += 1
            self._on_record(decode_record(message.data))

    def _on_record(self, record: Record) -> None:
        if record.part == 0:  # parts of a record before it are incomplete: its writer stopped in the middle
            self._parts_read = []
        self._parts_read.append(record)
        if record.part == record.parts - 1 and len(self._parts_read) == record.parts:
            self._apply(decode_body(b"".join(part.body for part in self._parts_read)))

    def _apply(self, body: Body) -> None:
        for second, changes in body.saves:
            self._replica.save_at(changes, second)
        self._replica.raise_tombstone_horizon(body.tombstone_horizon)

    # Reading the replica

    def load(self, kind: str) -> Iterator[tuple[Key, KeyRows]]:
        return self._replica.load(kind)

    def tombstones(self, site_id: SiteId) -> list[Tombstone]:
        return self._replica.tombstones(site_id)

    def tombstone_horizon(self) -> int:
        return self._replica.tombstone_horizon()

    def debug_state(self) -> dict[int, Changes]:
        """The whole state, as the next owner reads it."""
        return {second: decode(encode(changes)) for second, changes in self._replica.snapshot().items()}

    # Saving

    def save(self, changes: Changes) -> None:
        """Records are encoded here and not in the loop's thread: those of 20,000 counters take 0.1 s."""
        if self._saving is None or self._saving[0] is not changes:  # else this is another attempt
            self._saving = changes, int(self._wall_clock())
            self._unsent += self._records(Body([(self._saving[1], changes)]))
        self._wait_for(self._append_changes())
        self._replica.save_at(*self._saving)
        self._saving = None
        if self._messages > self.compact_after_messages:
            whole_state = Body([*self._replica.snapshot().items()], self._replica.tombstone_horizon())
            records = self._records(whole_state)
            with suppress(BrokerUnavailable):  # the next save appends what is left of it
                self._wait_for(self._compact(records))

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _append_changes(self) -> None:
        await self._append_unsent()
        if not self._leased():
            raise BrokerUnavailable("lease expired")

    async def _compact(self, whole_state: list[Record]) -> None:
        last_before = self._last_sequence
        self._unsent += whole_state
        await self._append_unsent()
        self._messages = 0  # without those of the whole state: one of many parts would be written again at once
        with suppress(*BROKER_ERRORS):  # the next compaction purges these messages too
            await self._jetstream.purge_stream(LOG_STREAM, seq=last_before + 1, subject=self._subject)

    def _records(self, body: Body) -> list[Record]:
        self._bodies += 1
        return split(self._ownership_id, self._bodies, body, self.part_bytes)

    async def _append_unsent(self) -> None:
        while self._unsent:
            await self._append(self._unsent[0])
            self._unsent.pop(0)

    async def _append(self, record: Record) -> None:
        headers = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(self._last_sequence)}
        payload = msgspec.msgpack.encode(record)
        try:
            confirmed = await self._jetstream.publish(
                self._subject, payload, JETSTREAM_TIMEOUT_S, LOG_STREAM, headers=headers
            )
            self._last_sequence = confirmed.seq
        except APIError as error:
            if error.err_code not in _WRONG_LAST_SEQUENCE:
                raise BrokerUnavailable(str(error)) from error
            await self._confirm_or_fence(record)
        except BROKER_ERRORS as error:
            raise BrokerUnavailable(f"no answer from the broker: {error!r}") from error
        self._messages += 1

    async def _confirm_or_fence(self, record: Record) -> None:
        """The append was rejected. If the last message is this record, an earlier attempt's confirmation was lost."""
        try:
            last = await self._jetstream.get_last_msg(LOG_STREAM, self._subject)
        except BROKER_ERRORS as error:
            raise BrokerUnavailable(f"no answer from the broker: {error!r}") from error
        found = decode_record(last.data)
        if (found.ownership_id, found.number, found.part) != (record.ownership_id, record.number, record.part):
            raise Fenced(f"{self._subject} was taken over by another coordinator")
        self._last_sequence = last.seq or 0
