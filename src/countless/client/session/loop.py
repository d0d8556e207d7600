"""The client's background thread: one session with each shard, over one transport."""

import selectors
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from math import inf
from threading import RLock

from countless.client.kinds.budget import SessionBudget
from countless.client.kinds.member import AnyMember
from countless.client.session.protocol import NewIncarnation, Origin, SiteSession
from countless.client.session.reconnect import Backoff, OnStatus, ReconnectingSession
from countless.client.session.windows import WindowsState
from countless.client.surroundings import REAL, ClientSurroundings
from countless.client.transport.base import EMPTY, ConnectionLost, Received, Transport
from countless.core.messages import SiteId
from countless.errors import ProtocolError
from countless.wire.keys import BUDGET, Key

# `select` raises ValueError in a process with more than 1,024 open files; Windows has no `poll`.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Wakeup:
    """Any thread may `notify`. One thread waits."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def notify(self) -> None:
        with suppress(OSError):  # a notification is pending already, or the thread has ended
            self._writer.send(b"!")

    def wait(self, timeout_s: float | None, sockets: Sequence[socket.socket] = ()) -> bool:
        """Until one of the sockets has data or is closed (True), for one or several notifications, or for so long."""
        with _Selector() as selector:
            for each in (self._reader, *sockets):
                selector.register(each, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(timeout_s)]
        with suppress(BlockingIOError):
            self._reader.recv(64)
        return any(each in sockets for each in ready)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


NewIncarnationOfShard = Callable[[SiteId, int], AbstractContextManager[None]]


class ClientLoop:
    """Sends what the counters report, to all shards, until the client leaves."""

    def __init__(
        self,
        site_id: SiteId,
        members: Mapping[Key, AnyMember],
        lock: RLock,
        transport: Transport,
        on_status: OnStatus,
        new_incarnation: NewIncarnationOfShard,
        budgets: Mapping[str, SessionBudget] | None = None,
        windows: Mapping[Key, WindowsState] | None = None,
        surroundings: ClientSurroundings = REAL,
        incarnations: Mapping[int, int] | None = None,
        origin: Origin = Origin.MEMORY,
    ) -> None:
        """`incarnations`: by shard, where it is not that of the site id."""
        self._origin = origin
        self._incarnations: Mapping[int, int] = {} if incarnations is None else incarnations
        self._budgets: Mapping[str, SessionBudget] = {} if budgets is None else budgets
        self._windows: Mapping[Key, WindowsState] = {} if windows is None else windows
        self.waiters = 0  # threads that wait for an acknowledgement
        self._site_id = site_id
        self._members = members
        self._lock = lock
        self._transport = transport
        self._on_status = on_status
        self._new_incarnation = new_incarnation
        self._surroundings = surroundings
        self._clock = surroundings.clock
        self._sessions: list[SiteSession] = []  # one for each shard, once their number is known
        self._reconnecting: list[ReconnectingSession] = []  # these, for the thread
        self._wakeup: Wakeup | None = None
        self._ack_requested = 0
        self._urgent = self._leaving = self._stopped = False

        for member in members.values():
            member.bind(self._notify_of)

    def open(self, wakeup: Wakeup | None = None) -> None:
        """Call it before the thread starts, or before the first `step`."""
        self._wakeup = wakeup or Wakeup()

    # For the program's threads, which hold the lock

    @property
    def done(self) -> bool:
        return self._stopped or (bool(self._sessions) and all(session.done for session in self._sessions))

    @property
    def connected(self) -> bool:
        """Every shard to which anything is due has answered on its present stream."""
        needed = [session for session in self._sessions if session.has_work]
        return bool(needed) and all(session.connected for session in needed)

    @property
    def delivered(self) -> bool:
        """All counters have left, and all shards have acknowledged that."""
        return bool(self._sessions) and all(session.delivered for session in self._sessions)

    @property
    def rejected(self) -> dict[str, str]:
        """Counters and families that the coordinator does not count, with its reasons."""
        return {name: reason for session in self._sessions for name, reason in session.rejected.items()}

    @property
    def undeliverable(self) -> bool:
        return any(session.undeliverable for session in self._sessions)

    @property
    def acked(self) -> int:
        """The last `request_ack` that all shards have acknowledged."""
        acks = (session.acked if session.has_work else self._ack_requested for session in self._sessions)
        return min(acks, default=0)

    def add(self, member: AnyMember) -> None:
        if self._sessions:
            self._session_of(member.key).add(member)
        else:
            member.bind(self._notify_of)

    def add_windows(self, windows: WindowsState) -> None:
        if self._sessions:
            self._session_of(windows.key).add_windows(windows)

    def site_id_for(self, key: Key) -> SiteId:
        """The id under which the shard of this key knows us: each shard may have retired earlier incarnations."""
        session = self.session_of(key)
        return self._site_id if session is None else session.site_id

    def session_of(self, key: Key) -> SiteSession | None:
        """With the shard of this key; None before the number of shards is known. Then it begins with all there is."""
        return self._session_of(key) if self._sessions else None

    def request_ack(self) -> int:
        """`acked` reaches the number that is returned when everything queued so far is on the coordinators' disks."""
        self._ack_requested += 1
        for session in self._sessions:
            session.request_ack(self._ack_requested)
        self._notify_urgent()
        return self._ack_requested

    def leave(self) -> None:
        """Send the final counts; `run` returns when they are acknowledged."""
        self._leaving = True
        for session in self._sessions:
            session.leave()
        self._notify_urgent()

    def stop(self) -> None:
        """`run` returns soon, whatever has been delivered."""
        self._stopped = True
        self._notify_urgent()

    def abandon(self) -> None:
        """In a forked child, where the thread does not exist: close what it had open, and send nothing."""
        self._transport.abandon()
        if self._wakeup is not None:
            self._wakeup.close()

    def _session_of(self, key: Key) -> SiteSession:
        return self._sessions[self._transport.shard_of(key)]

    def _notify_urgent(self) -> None:
        self._urgent = True
        self._notify()

    def _notify_of(self, key: Key) -> None:
        """The sessions begin with what the members have to report."""
        self._notify()

    def _notify(self) -> None:
        if self._wakeup is not None:
            self._wakeup.notify()

    # The thread

    def run(self) -> None:
        wakeup = self._wakeup
        if wakeup is None:
            return
        try:
            while not self.done:
                self.step(self._transport.receive() if self._wait(wakeup) else {}, wakeup)
        finally:
            self._transport.close()
            wakeup.close()

    def step(self, received: Mapping[int, Received], wakeup: Wakeup) -> None:
        """Handle what has arrived, by shard, and send what is due. Call it again at `next_wakeup`, or when `wakeup` is
        notified.
        """
        self._reconnecting = self._reconnecting or self._open_sessions(wakeup)
        with self._lock:
            urgent, self._urgent = self._urgent, False
        for shard, session in enumerate(self._reconnecting):
            session.step(received.get(shard, EMPTY), urgent, self._waited_for)

    @property
    def next_wakeup(self) -> float:
        return min((session.next_wakeup for session in self._reconnecting), default=0.0)

    def _wait(self, wakeup: Wakeup) -> bool:
        """Wait for data (True), a notification, or the time of the next step."""
        sockets = self._transport.sockets()
        timeout = None if self.next_wakeup == inf else max(0.0, self.next_wakeup - self._clock())
        return wakeup.wait(timeout, sockets)

    def _open_sessions(self, wakeup: Wakeup) -> list[ReconnectingSession]:
        """Find out how many shards there are, and assign the counters, budgets and families to them."""
        backoff = Backoff(self._surroundings.rng)
        while not self._stopped:
            try:
                shard_count = self._transport.shard_count()
                break
            except (ConnectionLost, ProtocolError) as error:
                self._on_status(str(error))
                self._sleep(wakeup, backoff.next(self._waited_for))
        else:
            return []
        with self._lock:
            self._sessions = [
                SiteSession(self._site_id_at(shard), self._lock, self._notify, self._surroundings, self._origin)
                for shard in range(shard_count)
            ]
            for member in self._members.values():
                self._session_of(member.key).add(member)
            for windows in self._windows.values():
                self._session_of(windows.key).add_windows(windows)
            for name, budget in self._budgets.items():
                self._session_of(Key(BUDGET, name)).budgets.add(name, budget)
            for session in self._sessions:
                session.request_ack(self._ack_requested)
                if self._leaving:
                    session.leave()
        return [
            ReconnectingSession(
                session, shard, self._transport, self._on_status, self._renewal_of(shard), self._surroundings
            )
            for shard, session in enumerate(self._sessions)
        ]

    def _site_id_at(self, shard: int) -> SiteId:
        return SiteId(self._site_id.site, self._incarnations.get(shard, self._site_id.incarnation))

    def _renewal_of(self, shard: int) -> NewIncarnation:
        return lambda site_id: self._new_incarnation(site_id, shard)

    @property
    def _waited_for(self) -> bool:
        return self._leaving or self.waiters > 0

    def _sleep(self, wakeup: Wakeup, seconds: float) -> None:
        """Until the time is over or the program is in a hurry."""
        deadline = self._clock() + seconds
        while not (self._urgent or self._stopped) and self._clock() < deadline:
            wakeup.wait(max(0.0, deadline - self._clock()))
        self._urgent = False
