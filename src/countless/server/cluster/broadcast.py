"""Round starts that many lines are to hear become few messages, which the broker fans out.

- The same pace for all, and nearly all lines of the shard are meant: one message to everybody, with the few left out.
- Otherwise, and whenever the pace is a lattice with an offset for each: one message for each group of lines.
- Fewer than `FEWEST` in a group: a message to each, as for everything else.

Who was not meant must not obey: a site whose count is known exactly is not asked at a round start, on purpose.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from countless.core.messages import StartRound
from countless.core.triggers import OffsetMultiple
from countless.wire import nats_subjects as nats
from countless.wire.nats_broadcast import pack_for_everybody, pack_for_group

if TYPE_CHECKING:
    from countless.server.cluster.connections import NatsLine

FEWEST = 4  # below this a message to each is as cheap
MOST_LEFT_OUT = 64  # the list travels to everybody: beyond this, groups are cheaper


class Fanned(NamedTuple):
    """One message that stands for many."""

    subject: str
    data: bytes
    start: StartRound
    lines: list["NatsLine"]


def fan_out(shard: int, session: str, due: list["NatsLine"], lines: Collection["NatsLine"]) -> Iterator[Fanned]:
    """What can be said to many at once is taken out of what waits on the lines that are `due`."""
    for starts in _alike(due):
        for fanned in _messages(shard, session, starts, lines):
            for line in fanned.lines:
                line.waiting.remove(starts[line])
            yield fanned


def _alike(due: list["NatsLine"]) -> list[dict["NatsLine", StartRound]]:
    """Round starts that differ in nothing but the offsets of their lattices."""
    kinds: dict[object, dict[NatsLine, StartRound]] = {}
    for line in due:
        if line.seated and line.closing is None:
            for item in line.waiting:
                if isinstance(item, StartRound):
                    trigger = item.trigger
                    same = ("lattice", trigger.step) if isinstance(trigger, OffsetMultiple) else trigger
                    kinds.setdefault((item.counter, item.round, same), {})[line] = item
    return list(kinds.values())


def _messages(
    shard: int, session: str, starts: dict["NatsLine", StartRound], lines: Collection["NatsLine"]
) -> Iterator[Fanned]:
    start = next(iter(starts.values()))
    if (
        len(starts) >= FEWEST
        and not isinstance(start.trigger, OffsetMultiple)
        and len(lines) - len(starts) <= MOST_LEFT_OUT
    ):
        left_out = [line.card.seat for line in lines if line not in starts]
        subject = nats.rounds(shard, session, nats.EVERYBODY)
        yield Fanned(subject, pack_for_everybody(start, left_out), start, list(starts))
        return
    groups: dict[int, list[NatsLine]] = {}
    for line in starts:
        groups.setdefault(line.card.group, []).append(line)
    for group, members in groups.items():
        if len(members) >= FEWEST:
            data = pack_for_group({line.card: starts[line] for line in members})
            yield Fanned(nats.rounds(shard, session, group), data, start, members)
