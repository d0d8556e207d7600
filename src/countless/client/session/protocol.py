"""The protocol between a client and one shard, on one stream of frames after another.

The protocol is a generator: it yields how many seconds it can wait and is sent the frames that have arrived; the caller
owns the sockets. Everything that is due goes into one frame. A queued message need not survive a broken stream: on the
next one every counter sends its exact count and, again, the messages that may have been lost.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from enum import Enum
from threading import RLock

from countless.client.kinds.budget import SessionBudgets
from countless.client.kinds.member import AnyMember, ItemEffect, Known, SessionPart
from countless.client.session.contact import Contact
from countless.client.session.members import SessionMembers, known_of
from countless.client.session.windows import WindowsState
from countless.client.surroundings import REAL, ClientSurroundings
from countless.client.transport.base import ConnectionLost, Send
from countless.core.messages import SiteId
from countless.errors import ProtocolError
from countless.wire.frames import (
    VERSION,
    DownItem,
    Hello,
    HelloAck,
    IncarnationExpired,
    IncarnationRetired,
    Inherited,
    Sync,
    SyncAck,
    UpItem,
    decode_down,
    encode_frames,
)
from countless.wire.incarnations import (
    MAX_INCARNATION,
    MAX_RANDOM,
    MAX_RANDOM_S,
    first_of,
    next_second,
    second_of,
    successor_of,
)
from countless.wire.keys import COUNTED

log = logging.getLogger("countless")

HELLO_TIMEOUT_S = 10.0
LINGER_S = 0.005  # between frames: messages that become due meanwhile share the next one
_TIMEOUT_HEARTBEATS = 3

SessionSteps = Generator[float, list[bytes], None]  # yields seconds to wait, is sent the frames that have arrived
# Called with the new site id. While the context lasts, all counters are reset; when it ends, they belong to the new id.
NewIncarnation = Callable[[SiteId], AbstractContextManager[None]]


class SessionRetired(Exception):
    """The coordinator has retired this incarnation, of which this is known. The next one must be at least `least`.

    `expired`: the coordinator has forgotten its counts, and `known` is what we have sent.
    """

    def __init__(self, known: Known, least: int = 0, expired: bool = False) -> None:
        super().__init__(known, least)
        self.known = known
        self.least = least
        self.expired = expired


def new_incarnation(surroundings: ClientSurroundings, least: int = 0) -> int:
    """Grows from day to day, and cannot be guessed."""
    began = max(0, int(surroundings.wall_clock()), next_second(least))
    second = min(began + surroundings.rng.randbelow(MAX_RANDOM_S), second_of(MAX_INCARNATION))
    return first_of(second) | surroundings.rng.randbelow(MAX_RANDOM)


class Origin(Enum):
    """The place where the counts of a session are kept, which decides what may happen to copies of them."""

    MEMORY = "in the memory of this process"
    FILE = "in a file of this process, which may have been copied"
    INHERITED = "in a file of another process, which has ended, or of which this is a copy"


class SiteSession:
    """The messages that are due to one shard, what it has acknowledged, and the protocol with it."""

    def __init__(
        self,
        site_id: SiteId,
        lock: RLock,
        notify: Callable[[], None],
        surroundings: ClientSurroundings = REAL,
        origin: Origin = Origin.MEMORY,
    ) -> None:
        self.site_id = site_id
        self._origin = origin
        self.acked = 0  # the last `request_ack` that was acknowledged
        self.has_work = False  # there is, or was, something to send
        self.done = False  # there is nothing more to send
        self.delivered = False  # ... because all counters have left, and the coordinator has acknowledged that
        self.undeliverable = False  # no attempt can succeed: counts that another process has left may be known already
        self.connected = False  # the coordinator has answered on the present stream
        self.contact = Contact()
        self.budgets = SessionBudgets(lock, self._has_work_now, origin is Origin.INHERITED)
        self._members = {kind: SessionMembers(kind, lock, self._has_work_now, surroundings.clock) for kind in COUNTED}
        self._parts: tuple[SessionPart, ...] = (*self._members.values(), self.budgets)
        self._lock = lock
        self._notify = notify
        self._surroundings = surroundings
        self._clock = surroundings.clock
        self._ack_requested = self._ack_sent = 0
        self._early_acks = 0  # so many that come next do not include what the coordinator has asked for again
        self._leaving = False
        self._wakeup_pending = False

    # For the program's threads, which hold the lock

    def add(self, member: AnyMember) -> None:
        self._members[member.key.kind].add(member, self.site_id)

    def add_windows(self, windows: WindowsState) -> None:
        self._members[windows.key.kind].windows.add(windows)

    def request_ack(self, number: int) -> None:
        """`acked` becomes `number` when everything that was queued before is on the coordinator's disk."""
        self._ack_requested = number
        self._notify_once()

    def leave(self) -> None:
        """Send the final counts, unless nothing was ever sent."""
        self._leaving = True
        if self.has_work:
            for part in self._parts:
                part.leave()
        self.done = self.delivered = not self.has_work
        self._notify_once()

    def _has_work_now(self) -> None:
        if not self.has_work:  # a session without work has no stream, so an earlier notification is pending for ever
            self.has_work, self._wakeup_pending = True, False
        self._notify_once()

    def _notify_once(self) -> None:
        if not self._wakeup_pending:
            self._wakeup_pending = True
            self._notify()

    @property
    def rejected(self) -> dict[str, str]:
        """Counters and families that the coordinator has rejected on the present stream, with its reasons."""
        return {name: reason for part in self._parts for name, reason in part.rejected.items()}

    # For the thread that owns the connection

    def renew(self, retired: SessionRetired, new_incarnation_of_all: NewIncarnation) -> None:
        """Continue as a new incarnation, with the events that are not among the known ones."""
        site, incarnation, _ = self.site_id
        if self._origin is Origin.MEMORY or retired.expired:
            site_id = SiteId(site, new_incarnation(self._surroundings, retired.least))
        else:
            site_id = SiteId(site, successor_of(incarnation, retired.least))
        with self._lock, new_incarnation_of_all(site_id):
            self.site_id = site_id
            for part in self._parts:
                part.renew(site_id, retired.known)

    def run(self, send: Send, on_ack: Callable[[], None]) -> SessionSteps:
        """Return when all counters have left. Raises `SessionRetired`, `ConnectionLost` or `ProtocolError`."""
        self.contact.new_stream()
        self._early_acks = 0
        send(next(encode_frames([Hello(VERSION, str(self.site_id.site), self.site_id.incarnation)])))
        heartbeat = yield from self._handshake()
        self.connected = True
        self._send(send, [*self._initial_items(), *self._drain(force_sync=True)])
        on_ack()
        last_received = last_sent = self._clock()
        while not self.done:
            # The coordinator times us out when it receives nothing for long, and sends nothing unless it has to. So a
            # Sync is due a heartbeat after our last frame, and a heartbeat after its last frame or our last Sync.
            sync_due = self._sync_due(last_sent, last_received, heartbeat)
            next_tick = min(part.next_tick for part in self._parts)
            due = last_sent + LINGER_S if self._wakeup_pending else min(sync_due, next_tick)
            frames = yield max(0.0, due - self._clock())
            now = self._clock()
            if frames:
                last_received = now
                self._on_items([item for frame in frames for item in self._decode(frame)], on_ack)
            self._tick(now)
            if now - last_received > _TIMEOUT_HEARTBEATS * heartbeat:
                raise ConnectionLost(f"connection timed out: nothing received for {now - last_received:.1f} s")
            items = self._drain() if self._wakeup_pending and now - last_sent >= LINGER_S else []
            if now >= self._sync_due(last_sent, last_received, heartbeat):
                items.append(self._sync(now))
            if items:
                last_sent = now
                self._send(send, items)

    def _tick(self, now: float) -> None:
        if self.done:  # windows that were rejected are not tried again, and stay in `rejected`
            return
        for part in self._parts:
            part.tick(now)

    def _sync_due(self, last_sent: float, last_received: float, heartbeat: float) -> float:
        due = min(last_sent, max(last_received, self.contact.last_sync)) + heartbeat
        return min(due, self.contact.due) if any(part.leased for part in self._parts) else due

    def _sync(self, now: float) -> Sync:
        self.contact.sync_sent(now)
        return Sync(self._ack_sent)

    def _handshake(self) -> Generator[float, list[bytes], float]:
        """Wait for the answer to the hello; the heartbeat in seconds."""
        deadline = self._clock() + HELLO_TIMEOUT_S
        items: list[DownItem] = []
        while True:
            frames = yield max(0.0, deadline - self._clock())
            for frame in frames:
                for item in self._decode(frame):
                    if isinstance(item, HelloAck):
                        return max(0.01, item.heartbeat_ms / 1000)
                    items.append(item)
                    if isinstance(item, IncarnationRetired):
                        raise SessionRetired(known_of(items), item.incarnation)
                    if isinstance(item, IncarnationExpired):
                        raise self._expired(item)
            if self._clock() >= deadline:
                raise ConnectionLost(f"connection timed out: no answer to the hello for {HELLO_TIMEOUT_S:.0f} s")

    def _expired(self, item: IncarnationExpired) -> SessionRetired:
        """Renew without sending anything again: it may be in the totals already."""
        if item.incarnation > MAX_INCARNATION - MAX_RANDOM:
            raise ProtocolError(f"no incarnation can be {item.incarnation} or more")
        with self._lock:
            if self._origin is Origin.INHERITED and any(part.counted for part in self._parts):
                self.undeliverable = True
                raise ProtocolError(
                    "the process that left these counts was retired longer ago than the coordinator "
                    "remembers: they may be in the totals already"
                )
            sent = Known({key: sent for part in self._parts for key, sent in part.sent.items()})
        if sent.members:
            log.warning("incarnation expired, counts already sent are not repeated: counters=%d", len(sent.members))
        return SessionRetired(sent, item.incarnation, expired=True)

    def _initial_items(self) -> list[UpItem]:
        items: list[UpItem] = [Inherited()] if self._origin is Origin.INHERITED else []
        for part in self._parts:
            items += part.initial_items()
        return items

    def _drain(self, force_sync: bool = False) -> list[UpItem]:
        """Take all that is due, with a Sync if an acknowledgement was requested since the last one.

        There is one with what may turn out to be leased as well, if none was sent for long.
        """
        with self._lock:
            self._wakeup_pending = False
            now, items = self._clock(), list[UpItem]()
            for part in self._parts:
                due = part.drain()
                force_sync = force_sync or (part.may_lease and bool(due) and now >= self.contact.due)
                items += due
            if self._leaving:
                items += [item for part in self._parts for item in part.leave_items()]
                self._check_all_left()
            if force_sync or self._ack_requested > self._ack_sent:
                self._ack_sent = self._ack_requested
                items.append(self._sync(now))
        return items

    def _check_all_left(self) -> None:
        if self._leaving and all(part.all_left for part in self._parts):
            self.delivered, self.done = all(part.delivered for part in self._parts), True

    def _on_items(self, items: list[DownItem], on_ack: Callable[[], None]) -> None:
        for item in items:
            if isinstance(item, SyncAck):
                self._on_ack(item.number)
                on_ack()
                if self.contact.sync_answered(self._clock()):
                    with self._lock:
                        for part in self._parts:
                            part.on_contact()
            else:
                with self._lock:
                    self._on_item(item)

    def _on_ack(self, number: int) -> None:
        if self._early_acks:
            self._early_acks -= 1
        else:
            self.acked = max(self.acked, number)

    def _on_resend(self) -> None:
        """Reports were lost with an earlier stream: `flush` waits for them, so a Sync must follow them."""
        self._early_acks, self._ack_sent = self.contact.unanswered, self.acked
        self._notify_once()

    def _on_item(self, item: DownItem) -> None:
        for part in self._parts:
            if part.receive(item, self.site_id) is ItemEffect.RESEND:
                self._on_resend()
        self._check_all_left()

    def _send(self, send: Send, items: list[UpItem]) -> None:
        for frame in encode_frames(items, self._surroundings.max_frame_bytes):
            send(frame)

    def _decode(self, frame: bytes) -> list[DownItem]:
        return decode_down(frame, self._surroundings.max_frame_bytes)
