"""Sites of Countless that speak to a real coordinator over WebSocket, at virtual times.

They are the client's own parts - meter, site, frames, link - without its thread, because the thread lives by the real
clock: here the race says when time passes, and nothing goes on before every message has arrived, been saved and been
answered. What is asked for that purpose, the *probes*, is taken off the bill. Signs of life, which a client gives when
it has had nothing to say for as long as the coordinator allows, are really sent, at their virtual time.
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
from race.contestants.base import Bill, Case, Fleet, News, name_of
from race.contestants.coordinator import Questions
from race.wire import ASIDE, bytes_of
from race.workloads import Event

_WS_HEADER = 2  # bytes around a short frame from the server


class Connection:
    """One site: its meters, its link, and what has travelled."""

    def __init__(self, name: str, place: Endpoint) -> None:
        self.frames = 0  # with counts in them, both ways
        self.probe_bytes = 0
        self.spoke = 0.0  # virtual time
        self._address = SiteId(name, 1)
        self._lock = RLock()
        self._meters: dict[str, LocalCounter] = {}
        self._joined: set[str] = set()
        self.due: list[UpMessage] = []
        self._awaited = 0  # questions on their way
        self.link = WebSocketConnection(place, None)
        self.link.send(next(encode_frames([Hello(VERSION, name, 1)])))
        welcome: list[DownItem] = []
        while not welcome:
            welcome = [item for frame in self.link.receive() for item in decode_down(frame)]
        if not isinstance(welcome[0], HelloAck):
            raise TypeError(f"not a welcome: {welcome}")

    def add(self, counter: str) -> None:
        """One event: what every client does."""
        meter = self._meters.get(counter)
        if meter is None:
            site = Site(counter, self._address, SystemRandom())
            meter = self._meters[counter] = LocalCounter(
                site, self._lock, lambda _, messages: self.due.extend(messages)
            )
        meter.add()

    def speak(self, sent: Tally[str]) -> None:
        """All that is due in one frame, and a probe, whose answer says when it has been dealt with."""
        items: list[UpItem] = []
        for message in self.due:
            if message.counter in self._joined:
                items.append(message)
            else:
                hello, resume = self._meters[message.counter].rejoin_messages()
                items += [Join(*hello), *resume]
                self._joined.add(message.counter)
        self.due.clear()
        sent.update(item.counter for item in items if isinstance(item, UpMessage | Join))
        self.frames += 1
        self.probe_bytes += _size(Sync(1))
        self._awaited += 1
        for frame in encode_frames([*items, Sync(1)]):
            self.link.send(frame)

    def give_sign(self) -> None:
        """Still here."""
        self._awaited += 1
        self.link.send(next(encode_frames([Sync(0)])))

    def hear(self, heard: Tally[str]) -> None:
        """Wait for frames from the coordinator, and do as they say."""
        for frame in self.link.receive():
            items = decode_down(frame)
            orders = [item for item in items if isinstance(item, DownMessage)]
            probes = sum(item == SyncAck(1) for item in items)
            self._awaited -= sum(isinstance(item, SyncAck) for item in items)
            self.probe_bytes += len(frame) + _WS_HEADER if probes == len(items) else probes * _size(SyncAck(1))
            self.frames += bool(orders)
            for order in orders:
                heard[order.counter] += 1
                self.due.extend(self._meters[order.counter].receive(order))

    def wait(self, heard: Tally[str]) -> None:
        """Until every question has been answered."""
        while self._awaited:
            self.hear(heard)


def _size(item: Sync | SyncAck) -> int:
    """Bytes of an item inside a frame."""
    return len(next(encode_frames([item]))) - 1


class LinkFleet(Fleet):
    """All sites in this thread, one after the other."""

    def __init__(self, site_id: str, case: Case) -> None:
        place = Endpoint.parse(site_id)
        self._sites = [Connection(f"site-{site}", place) for site in range(case.sites)]
        self._by_file = {site.link.socket.fileno(): site for site in self._sites}
        self._poll = select.poll()
        for file in self._by_file:
            self._poll.register(file, select.POLLIN)
        self._quiet = dict.fromkeys(self._sites)  # in the order in which they last spoke
        self._heartbeat = HEARTBEAT_PER_TIMEOUT * case.silent_after
        self._signs = 0
        self._sent: Tally[str] = Tally()
        self._heard: Tally[str] = Tally()
        self._questions = Questions(site_id)

    def count(self, event: Event) -> News:
        """A site counts; if its pace says so it speaks, and everything that follows from it happens now."""
        site = self._sites[event.site]
        for counter in event.counters:
            site.add(name_of(counter))
        if not site.due:
            return []
        self._exchange(site, event.time)
        return [(counter, self._settle(name_of(counter), event.time)) for counter in event.counters]

    def _exchange(self, site: Connection, now: float) -> None:
        while site.due:  # what it hears may make it speak again
            site.speak(self._sent)
            self._has_spoken(site, now)
            site.wait(self._heard)

    def _settle(self, counter: str, now: float) -> float:
        """What the public sees, once nothing of this counter is under way."""
        while True:
            with ASIDE.aside():
                view = self._questions.ask(counter)
            if view["messages"] == {"up": self._sent[counter], "down": self._heard[counter]}:
                return float(view["estimate"])
            for file, _ in self._poll.poll(1000):
                self._by_file[file].hear(self._heard)
                self._exchange(self._by_file[file], now)

    def _has_spoken(self, site: Connection, now: float) -> None:
        site.spoke = now
        del self._quiet[site]
        self._quiet[site] = None

    def tick(self, now: float) -> None:
        """Whoever has been quiet for long gives a sign of life. Called often enough to be on time."""
        for site in list(self._quiet):
            if site.spoke + self._heartbeat > now:
                break
            while site.spoke + self._heartbeat <= now:
                site.give_sign()
                site.wait(self._heard)  # one at a time: two questions may get one answer
                self._signs += 1
                self._has_spoken(site, site.spoke + self._heartbeat)

    def bill(self) -> Bill:
        """Every connection, from its first byte on, without the probes."""
        for site in self._sites:
            site.wait(self._heard)
        wire = sum(bytes_of(site.link.socket) - site.probe_bytes for site in self._sites)
        return Bill(sum(site.frames for site in self._sites), wire, self._signs)

    def close(self) -> None:
        """Hang up."""
        self._questions.close()
        for site in self._sites:
            site.link.abandon()
