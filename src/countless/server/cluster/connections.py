"""The lines of one shard: what sites publish goes to the host, what the host sends goes to the sites.

A site publishes frames to the shard's subject, numbered; a gap ends the line (see `wire/nats_subjects.py`). What a host
sends in one go is written in one go: round starts that many sites are to hear are fanned out by the broker
(`server/cluster/broadcast.py`), the rest goes to each site's own subject.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from secrets import token_bytes
from time import monotonic

from countless.errors import ProtocolError
from countless.server.cluster.broadcast import fan_out
from countless.server.sessions.session_table import Life
from countless.server.sessions.site_server import Host
from countless.wire import nats_subjects as nats
from countless.wire.frames import DownItem, Hello, UpItem, decode_up, encode_frames

log = logging.getLogger("countless.nats")

Publish = Callable[[str, bytes], Awaitable[None]]
_MOST_WAITING = 1000  # frames from a site whose hello is still being looked at


class Budget:
    """How many messages a site may send. Over a broker nobody can be kept waiting: whoever sends more is cut off."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = 4.0 * per_second  # a site that comes back says a few words on each of its counters
        self._then = monotonic()

    def spend(self, messages: int) -> bool:
        """False: that was too much."""
        now = monotonic()
        self._left = min(4.0 * self._per_second, self._left + (now - self._then) * self._per_second) - messages
        self._then = now
        return self._left >= 0


class NatsLine:
    """A line, as the host sees it: sending only queues."""

    def __init__(self, lines: "NatsLines", inbox: str, card: nats.Card) -> None:
        self.heard = monotonic()
        self.void: set[str] = set()
        self.inbox = inbox
        self.card = card
        self.seated = False  # it has spoken since it was given its card: it listens where round starts are fanned out
        self.life: Life | None = None
        self.closing: str | None = None
        self.budget = Budget(lines.host.settings.max_messages_per_second)
        self.early: list[bytes] = []  # frames that came before the host had answered the hello
        self.expected = 1  # the number of the next frame
        self.sent = self.fanned = 0
        self.waiting: list[DownItem] = []
        self._lines = lines

    def send(self, items: list[DownItem]) -> None:
        """Queue what is to be sent."""
        self.waiting += items
        self._lines.wake(self)

    def close(self, code: int, reason: str) -> None:
        """Hang up, once what is queued has been sent."""
        self.closing = self.closing or reason
        self._lines.wake(self)


class NatsLines:
    """All lines of one shard in one session of its coordinator."""

    def __init__(self, host: Host, shard: int, session: str, leased: Callable[[], bool], publish: Publish) -> None:
        self.host = host
        self._leased = leased
        self._shard = shard
        self._session = session
        self._publish = publish
        self._lines: dict[tuple[str, str], NatsLine] = {}  # by token of the site and name of the line
        self._free_seats: list[int] = []
        self._due: dict[NatsLine, None] = {}
        self._wake = asyncio.Event()
        self._hellos: set[asyncio.Task[None]] = set()

    # From the sites

    async def arrived(self, subject: str, data: bytes) -> None:
        """A message on this shard's subject. Without a lease it may be meant for another; if not, it will be missed."""
        if not self._leased():
            return
        site, name = subject.split(".")[3:5]
        line = self._lines.get((site, name))
        try:
            number, frame = nats.unpack_up(data)
            if data == nats.GOODBYE:
                self._leave(site, name)
            elif line is None and number == 0:
                self._enter(site, name, frame)
            elif line is None:
                await self._publish(nats.down(self._shard, site, name), nats.pack_closed("say hello"))
            elif number == line.expected and line.closing is None:
                line.expected += 1
                self._hear(line, frame)
            elif line.closing is None:
                line.close(1008, "a frame was lost on the way")
        except Exception as error:
            self._fail(line, error)

    def _enter(self, site: str, name: str, frame: bytes) -> None:
        host = self.host
        seat = heapq.heappop(self._free_seats) if self._free_seats else len(self._lines)
        card = nats.Card(self._session, seat, token_bytes(16))
        line = self._lines[site, name] = NatsLine(self, nats.down(self._shard, site, name), card)
        host.connections += 1
        if host.connections > host.settings.max_connections or host.draining:
            host.dropped["too many connections"] += 1
            return line.close(1013, "no more connections (max_connections)")
        task = asyncio.get_running_loop().create_task(self._introduce(line, site, frame))
        self._hellos.add(task)
        return task.add_done_callback(self._hellos.discard)

    async def _introduce(self, line: NatsLine, site: str, frame: bytes) -> None:
        try:
            self.host.frame_bytes["up"] += len(frame)
            items = decode_up(frame)
            line.life = await self.host.hello(line, _require_hello(items, site))
            if line.life is not None:  # else it has been told that its life is over, and will hang up
                self.host.hear(line.life, line, items[1:], len(frame))
                for early in line.early:
                    self._hear(line, early)
        except Exception as error:
            self._fail(line, error)

    def _hear(self, line: NatsLine, frame: bytes) -> None:
        if line.life is None:
            line.early.append(frame)
            if len(line.early) > _MOST_WAITING:
                raise ProtocolError("does not wait for the answer to its hello")
            return
        line.seated = True
        self.host.frame_bytes["up"] += len(frame)
        items: list[UpItem] = decode_up(frame)
        self.host.hear(line.life, line, items, len(frame))
        if not line.budget.spend(len(items)):  # nothing is lost: it comes back after a pause, and says it again
            self.host.dropped["too many messages"] += 1
            line.close(1008, "too many messages (max_messages_per_second)")

    def _fail(self, line: NatsLine | None, error: Exception) -> None:
        if isinstance(error, ProtocolError):
            self.host.dropped["protocol"] += 1
        else:  # a bug of ours: this site is cut off and will come back; the others go on
            self.host.dropped["internal"] += 1
            log.error("a site's message could not be handled", exc_info=error)
        if line is not None:
            line.close(1008, str(error) if isinstance(error, ProtocolError) else "internal error")

    def _leave(self, site: str, name: str) -> None:
        line = self._lines.pop((site, name), None)
        if line is not None:
            self._due.pop(line, None)
            self.host.connections -= 1
            # Whoever sits here next subscribes after what was published to this seat has passed through the broker.
            heapq.heappush(self._free_seats, line.card.seat)
            if line.life is not None:
                self.host.lost(line.life, line)

    def sweep(self) -> None:
        """Now and then: who was told that its life is over, and did not even say goodbye?"""
        for line in self._lines.values():
            if line.life is None and monotonic() - line.heard > self.host.settings.silent_after:
                line.close(1001, "no sign of life")

    # To the sites

    def wake(self, line: NatsLine) -> None:
        """This line has something to send."""
        self._due[line] = None
        self._wake.set()

    async def call(self) -> None:
        """Tell everybody who counts in this shard that there is somebody new to say hello to."""
        await self._publish(nats.call(self._shard), self._session.encode())

    async def write(self) -> None:
        """Send what is queued, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send what is queued now. Without a lease nothing is said: whoever waits for it will notice, and ask again."""
        due, self._due = list(self._due), {}
        if not self._leased():
            return
        for subject, data, start, lines in fan_out(self._shard, self._session, due, self._lines.values()):
            for line in lines:
                line.fanned += 1
            self.host.sent([start], len(data))
            await self._publish(subject, data)
        for line in due:
            await self._send(line)

    async def _send(self, line: NatsLine) -> None:
        items, line.waiting = line.waiting, []
        if items and not line.sent:
            await self._publish(line.inbox, nats.pack_card(line.card))
        for frame in encode_frames(items):
            line.sent += 1
            data = nats.pack_words(nats.Words(line.sent, line.fanned, frame))
            self.host.sent(items, len(data))
            await self._publish(line.inbox, data)
        if line.closing is not None:
            await self._publish(line.inbox, nats.pack_closed(line.closing))
            self._leave(*line.inbox.split(".")[3:5])

    async def close(self, reason: str) -> None:
        """All lines: somebody else will be there in a moment."""
        for task in self._hellos:
            task.cancel()
        for line in list(self._lines.values()):
            line.close(1012, reason)
        await self.flush()


def _require_hello(items: list[UpItem], site: str) -> Hello:
    if not items or not isinstance(items[0], Hello):
        raise ProtocolError("a line begins with a hello")
    if nats.token(items[0].site) != site:  # the broker's permissions are for the subject
        raise ProtocolError(f"site {items[0].site!r} speaks on the subject of another")
    return items[0]
