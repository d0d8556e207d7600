"""The store of one shard over NATS: a log in JetStream, and a copy of what it says in memory.

Each save is a record, appended to the shard's subject with the sequence number that its last message must have
(`Nats-Expected-Last-Subject-Sequence`). That is all the fencing there is, and it is enough: whoever takes a shard over
reads the log to its end and appends a record of its own; from then on every append of the owner before fails, because
the last message is not the one it knows. Saving comes before sending, so it says nothing more.

A record that is too large for one message comes in parts, and counts when the last of them is there. Now and then
everything is written as one record, and what came before is purged.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import time
from typing import Any

import msgspec
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import Header
from nats.js.errors import APIError, NotFoundError

from countless.errors import CountlessError
from countless.server.cluster.records import Body, Record, changes_of, decode_body, decode_record, plain_of
from countless.server.storage.base import Changes, StoreError
from countless.server.storage.sqlite_store import SqliteStore

STREAM = "COUNTLESS"
SUBJECTS = "countless.log.*"
_PART = 1 << 18  # bytes of a message: a quarter of what brokers allow by default
_PURGE_AFTER = 1000  # messages: reading them all takes about a second
_WRONG_LAST_SEQUENCE = (10071, 10164)
PATIENCE = 2.0  # seconds: a stream without a leader does not answer at all, so ask again rather than wait
_ATTEMPTS = 20  # to take over: the owner before has lost its lease, so it will not write for long


class Deposed(CountlessError):
    """Somebody else has written to this shard's log: it is not ours any more."""


class BrokerAway(StoreError):
    """Nothing can be saved at present."""


class NatsStore(SqliteStore):
    """What was appended to the log, as a database in memory; a save is on the log before it is there."""

    def __init__(
        self,
        stream: JetStreamContext,
        shard: int,
        session: str,
        leased: Callable[[], bool],
        wall_clock: Callable[[], float] = time,
    ) -> None:
        # The copy must not depend on when the log is read: its clock is the time of the record that is taken in.
        super().__init__(None, lambda: self._at)
        self._at = 0
        self._now = wall_clock
        self._stream = stream
        self._subject = f"countless.log.{shard}"
        self._session = session
        self._leased = leased
        self._loop = asyncio.get_running_loop()
        self._last = 0  # the sequence number of the last message we know
        self._messages = 0  # since everything was written
        self._number = 0
        self._saving: Changes | None = None  # what is on its way to the log
        self._rest: list[Record] = []  # parts not yet known to be there, in order
        self._read_parts: list[Record] = []

    # Taking over

    async def take_over(self) -> None:
        """Read all there is, and append a record of ours: from now on nobody else's appends succeed."""
        for _ in range(_ATTEMPTS):
            await self._read()
            self._number += 1
            with suppress(Deposed):  # the owner before was faster once more
                return await self._append(Record(self._session, self._number, 0, 1, msgspec.msgpack.encode(Body([]))))
        raise BrokerAway("the owner before writes faster than its log can be read")

    async def _read(self) -> None:
        while True:
            try:
                message = await self._stream.get_msg(STREAM, seq=self._last + 1, subject=self._subject, next=True)
            except NotFoundError:
                return
            self._last = message.seq or 0
            self._messages += 1
            self._fold(decode_record(message.data))

    def _fold(self, record: Record) -> None:
        if record.part == 0:
            self._read_parts = []
        self._read_parts.append(record)
        if record.part == record.parts - 1 and len(self._read_parts) == record.parts:
            self._take_in(decode_body(b"".join(part.body for part in self._read_parts)))

    def _take_in(self, body: Body) -> None:
        for plain in body.saves:
            self._at = plain.at
            super().save(changes_of(plain))
        if body.pruned_before:
            with self._transaction():
                self._pruned(body.pruned_before)

    # Saving

    def save(self, changes: Changes) -> None:
        """All of it, or nothing; called outside the loop. When this returns, what depends on it may be sent."""
        self._wait_for(self._save(changes))
        super().save(changes)
        self._saving = None
        if self._messages > _PURGE_AFTER:
            with suppress(BrokerAway):  # what is left of it goes before the next save
                whole = [plain_of(changes, at) for at, changes in self.snapshot().items()]
                self._wait_for(self._write_everything(Body(whole, self.tombstone_horizon())))

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _save(self, changes: Changes) -> None:
        if changes is not self._saving:  # else it is another attempt
            self._saving, self._at = changes, int(self._now())
            self._rest += self._records(Body([plain_of(changes, self._at)]))
        await self._append_rest()
        if not self._leased():
            raise BrokerAway("the lease has run out, and could not be renewed yet")

    async def _write_everything(self, everything: Body) -> None:
        """Instead of all that was written before."""
        before, parts = self._last, self._records(everything)
        self._rest += parts
        await self._append_rest()
        self._messages = len(parts)
        with suppress(NatsError, TimeoutError, OSError):  # next time, then
            await self._stream.purge_stream(STREAM, seq=before + 1, subject=self._subject)

    def _records(self, content: Body) -> list[Record]:
        body = msgspec.msgpack.encode(content)
        self._number += 1
        starts = range(0, len(body), _PART)
        return [
            Record(self._session, self._number, part, len(starts), body[start : start + _PART])
            for part, start in enumerate(starts)
        ]

    async def _append_rest(self) -> None:
        while self._rest:
            await self._append(self._rest[0])
            self._rest.pop(0)

    async def _append(self, record: Record) -> None:
        expected = {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(self._last)}
        payload = msgspec.msgpack.encode(record)
        try:
            done = await self._stream.publish(self._subject, payload, PATIENCE, STREAM, headers=expected)
            self._last = done.seq
        except APIError as error:
            if error.err_code not in _WRONG_LAST_SEQUENCE:
                raise BrokerAway(str(error)) from error
            await self._find(record)
        except (NatsError, TimeoutError, OSError) as error:
            raise BrokerAway(f"the broker does not answer: {error!r}") from error
        self._messages += 1

    async def _find(self, record: Record) -> None:
        """The last message is not the one we know: is it this record, whose confirmation was lost?"""
        try:
            last = await self._stream.get_last_msg(STREAM, self._subject)
        except (NatsError, TimeoutError, OSError) as error:
            raise BrokerAway(f"the broker does not answer: {error!r}") from error
        found = decode_record(last.data)
        if (found.session, found.number, found.part) != (record.session, record.number, record.part):
            raise Deposed(f"{self._subject} was taken over by another coordinator")
        self._last = last.seq or 0
