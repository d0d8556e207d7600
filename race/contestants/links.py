"""Sites of Countless that are connected to a real coordinator over WebSocket, at virtual times.

They consist of the client's parts (counter, site, frames, connection) without its thread, because the thread uses the
real clock. Here the race advances the time, and waits until every message has arrived, was stored and was answered. It
does so with *probes* (Sync frames), whose bytes are subtracted. Heartbeats are sent at their virtual times.
"""

import select
from collections import Counter as Tally
from threading import RLock

from countless.client.local_counter import LocalCounter
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.core.messages import DownMessage, SiteId, UpMessage
from countless.core.site import Site
from countless.randomness import SystemRandom
from countless.server.sessions.session_table import HEARTBEAT_PER_TIMEOUT
from countless.wire.frames import (
    VERSION,
    DownItem,
    Hello,
    HelloAck,
    Join,
    Sync,
    SyncAck,
    UpItem,
    decode_down,
    encode_frames,
)
from race.contestants.base import Answers, Case, Fleet, Traffic, counter_name
from race.contestants.coordinator import OperatorView
from race.wire import ASIDE, bytes_of
from race.workloads import Event

_WS_HEADER = 2  # bytes around a short frame from the server


class Connection:
    """One site: its counters, its connection and its traffic."""

    def __init__(self, name: str, place: Endpoint) -> None:
        self.frames = 0  # with counts, in both directions
        self.probe_bytes = 0
        self.last_sent = 0.0  # virtual time
        self._address = SiteId(name, 1)
        self._lock = RLock()
        self._counters: dict[str, LocalCounter] = {}
        self._joined: set[str] = set()
        self.due: list[UpMessage] = []
        self._awaited = 0  # SyncAcks
        self.link = WebSocketConnection(place, None)
        self.link.send(next(encode_frames([Hello(VERSION, name, 1)])))
        items: list[DownItem] = []
        while not items:
            items = [item for frame in self.link.receive() for item in decode_down(frame)]
        if not isinstance(items[0], HelloAck):
            raise TypeError(f"no HelloAck: {items}")

    def add(self, counter: str) -> None:
        local = self._counters.get(counter)
        if local is None:
            site = Site(counter, self._address, SystemRandom())
            local = self._counters[counter] = LocalCounter(
                site, self._lock, lambda _, messages: self.due.extend(messages)
            )
        local.add()

    def send_due(self, sent: Tally[str]) -> None:
        """All that is due in one frame, and a probe, whose answer comes after its effects."""
        items: list[UpItem] = []
        for message in self.due:
            if message.counter in self._joined:
                items.append(message)
            else:
                hello, resume = self._counters[message.counter].rejoin_messages()
                items += [Join(*hello), *resume]
                self._joined.add(message.counter)
        self.due.clear()
        sent.update(item.counter for item in items if isinstance(item, UpMessage | Join))
        self.frames += 1
        self.probe_bytes += _size(Sync(1))
        self._awaited += 1
        for frame in encode_frames([*items, Sync(1)]):
            self.link.send(frame)

    def send_heartbeat(self) -> None:
        self._awaited += 1
        self.link.send(next(encode_frames([Sync(0)])))

    def receive(self, received: Tally[str]) -> None:
        """Wait for frames from the coordinator, and apply them."""
        for frame in self.link.receive():
            items = decode_down(frame)
            messages = [item for item in items if isinstance(item, DownMessage)]
            probes = sum(item == SyncAck(1) for item in items)
            self._awaited -= sum(isinstance(item, SyncAck) for item in items)
            self.probe_bytes += len(frame) + _WS_HEADER if probes == len(items) else probes * _size(SyncAck(1))
            self.frames += bool(messages)
            for message in messages:
                received[message.counter] += 1
                self.due.extend(self._counters[message.counter].receive(message))

    def receive_all(self, received: Tally[str]) -> None:
        """Until every probe and heartbeat has been answered."""
        while self._awaited:
            self.receive(received)


def _size(item: Sync | SyncAck) -> int:
    """Bytes of an item inside a frame."""
    return len(next(encode_frames([item]))) - 1


class LinkFleet(Fleet):
    """All sites in this thread, one after the other."""

    def __init__(self, address: str, case: Case) -> None:
        place = Endpoint.parse(address)
        self._sites = [Connection(f"site-{site}", place) for site in range(case.sites)]
        self._by_file = {site.link.socket.fileno(): site for site in self._sites}
        self._poll = select.poll()
        for file in self._by_file:
            self._poll.register(file, select.POLLIN)
        self._by_last_sent = dict.fromkeys(self._sites)  # in the order of their last frames
        self._heartbeat = HEARTBEAT_PER_TIMEOUT * case.silent_after
        self._heartbeats = 0
        self._sent: Tally[str] = Tally()
        self._received: Tally[str] = Tally()
        self._operator_view = OperatorView(address)

    def count(self, event: Event) -> Answers:
        site = self._sites[event.site]
        for counter in event.counters:
            site.add(counter_name(counter))
        if not site.due:
            return []
        self._deliver_due(site, event.time)
        return [(counter, self._answer(counter_name(counter), event.time)) for counter in event.counters]

    def _deliver_due(self, site: Connection, now: float) -> None:
        while site.due:  # what it receives may cause more
            site.send_due(self._sent)
            self._mark_sent(site, now)
            site.receive_all(self._received)

    def _answer(self, counter: str, now: float) -> float:
        """The published estimate, once no message of this counter is in flight."""
        while True:
            with ASIDE.aside():
                view = self._operator_view.get(counter)
            if view["messages"] == {"up": self._sent[counter], "down": self._received[counter]}:
                return float(view["estimate"])
            for file, _ in self._poll.poll(1000):
                self._by_file[file].receive(self._received)
                self._deliver_due(self._by_file[file], now)

    def _mark_sent(self, site: Connection, now: float) -> None:
        site.last_sent = now
        del self._by_last_sent[site]
        self._by_last_sent[site] = None

    def tick(self, now: float) -> None:
        for site in list(self._by_last_sent):
            if site.last_sent + self._heartbeat > now:
                break
            while site.last_sent + self._heartbeat <= now:
                site.send_heartbeat()
                site.receive_all(self._received)  # one at a time: two of them may get one answer
                self._heartbeats += 1
                self._mark_sent(site, site.last_sent + self._heartbeat)

    def traffic(self) -> Traffic:
        for site in self._sites:
            site.receive_all(self._received)
        wire = sum(bytes_of(site.link.socket) - site.probe_bytes for site in self._sites)
        return Traffic(sum(site.frames for site in self._sites), wire, self._heartbeats)

    def close(self) -> None:
        self._operator_view.close()
        for site in self._sites:
            site.link.abandon()
