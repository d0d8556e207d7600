"""Mistakes that are easily made with several coordinators; seeds must find each."""

import pytest

from countless.client.durable.count_file import CountFile
from countless.client.durable.record import CounterRecord
from countless.server.cluster.broker import LOG_STREAM
from countless.server.cluster.lease_keeper import LeaseKeeper
from countless.server.cluster.log_store import Fenced, LogStore
from countless.server.cluster.records import Body, Record, decode_body
from simulator.broker import Message, SimulatedBroker


def appends_without_fencing(patch: pytest.MonkeyPatch) -> None:
    """An owner appends behind records of another one, which it has not read."""
    original = SimulatedBroker.append

    def append(self: SimulatedBroker, subject: str, payload: bytes, expected: str | None) -> Message:
        return original(self, subject, payload, None)

    patch.setattr(SimulatedBroker, "append", append)


def answers_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseKeeper, "valid", lambda self: True)


def takes_over_after_one_read(patch: pytest.MonkeyPatch) -> None:
    """What an earlier owner appends after the log was read is not read."""

    async def take_over(self: LogStore) -> None:
        await self._read_to_end()
        while True:
            [opening] = self._records(Body([]))
            try:
                return await self._append(opening)
            except Fenced:
                self._last_sequence = (await self._jetstream.get_last_msg(LOG_STREAM, self._subject)).seq or 0

    patch.setattr(LogStore, "take_over", take_over)


def joins_parts_of_two_records(patch: pytest.MonkeyPatch) -> None:
    """What a killed owner has left in the middle of a record is not dropped."""

    def on_record(self: LogStore, record: Record) -> None:
        self._parts_read.append(record)
        if record.part == record.parts - 1:
            parts, self._parts_read = self._parts_read, []
            self._apply(decode_body(b"".join(part.body for part in parts)))

    patch.setattr(LogStore, "_on_record", on_record)


def forgets_other_shards_when_one_has_retired_the_process(patch: pytest.MonkeyPatch) -> None:
    """Their records in the file are not copied to the slot that becomes active."""
    patch.setattr(CounterRecord, "copy_slot", lambda self: None)


def delivers_as_the_incarnation_that_a_shard_has_retired(patch: pytest.MonkeyPatch) -> None:
    """That the shard has another one is in the file, and is ignored."""
    patch.setattr(CountFile, "incarnations", property(lambda self: {}))
