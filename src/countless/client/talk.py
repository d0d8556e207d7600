"""What a client and a coordinator say to each other on one connection after another.

The thread's side of the client: it waits for the socket, for the program (through a wake-up socket) and for the
clock, and sends all that is due in one frame. Nothing that was queued needs to survive a broken connection: on the
next one every counter says its exact count and, again, whatever may have been lost.
"""

import logging
import select
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import RLock
from time import monotonic, time
from typing import Protocol

from countless.client.link import Link, LinkError
from countless.core.messages import Address, DownMessage, Repace, Snapshot, StartRound, UpMessage
from countless.core.site import Site
from countless.randomness import SystemDice
from countless.transports.frames import (
    VERSION,
    Again,
    Buried,
    DownItem,
    Hello,
    Join,
    Leave,
    Left,
    Refused,
    Sync,
    Synced,
    UpItem,
    Welcome,
    decode_down,
    encode_frames,
)

log = logging.getLogger("countless")

_PATIENCE = 10.0  # seconds for the coordinator's first answer
_LINGER = 0.005  # seconds between frames: what becomes due meanwhile travels together


class Reborn(Exception):
    """The coordinator gave this life up; what it knows of each counter."""

    def __init__(self, known: dict[str, int]) -> None:
        super().__init__(known)
        self.known = known


def new_incarnation() -> int:
    """Later lives have higher numbers, and nobody can guess one."""
    return (int(time()) << 30) | SystemDice().below(1 << 30)


class Voice(Protocol):
    """A counter of this life, as the conversation needs it: a meter, or what a dead process has left of one."""

    @property
    def open(self) -> bool:
        """Whether it still counts."""

    def hello(self) -> tuple[Snapshot, tuple[UpMessage, ...]]:
        """The exact count, and all that may have been lost with the last connection."""

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        """The coordinator spoke."""

    def reborn(self, site_with: Callable[[int], Site], settled: int | None) -> None:
        """Begin again with what was counted beyond `settled`."""


class Talk:
    """What is due, what was confirmed, and how to say it."""

    def __init__(self, meters: Mapping[str, Voice], lock: RLock) -> None:
        self.confirmed = 0  # the last `ask` that was answered
        self.over = False  # nothing more is to be said
        self.delivered = False  # ... because we have left, and the coordinator knows all
        self.heard = False  # on this connection
        self._meters = meters
        self._lock = lock
        self._asked = self._sent = 0
        self._leaving = False
        self._due: dict[tuple[str, type[UpMessage]], UpMessage] = {}
        self._joined: set[str] = set()  # on this connection
        self._left: set[str] = set()
        self._refused: set[str] = set()  # on this connection
        self._rung = False

    def open(self) -> None:
        """The thread begins to listen."""
        self._ears, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        self._ears.setblocking(False)

    # For the program's threads, under the lock

    def queue(self, counter: str, messages: tuple[UpMessage, ...]) -> None:
        """To be sent soon. Of two reports only the later matters: it says all that the earlier one said."""
        for message in messages:
            key = (counter, type(message))
            self._due.pop(key, None)
            self._due[key] = message
        self.poke()

    def ask(self) -> int:
        """For a confirmation that everything so far has arrived."""
        self._asked += 1
        self.poke()
        return self._asked

    def leave(self) -> None:
        """Say the last words."""
        self._leaving = True
        self.poke()

    def poke(self) -> None:
        """Wake the thread."""
        if not self._rung:
            self._rung = True
            with suppress(OSError):  # the thread has ended
                self._bell.send(b"!")

    def stop(self) -> None:
        """Say no more."""
        self.over = True
        self.poke()

    def drop(self) -> None:
        """The thread has ended, or was left behind by a fork."""
        self._ears.close()
        self._bell.close()

    # For the thread

    def converse(self, link: Link, address: Address, confirmed: Callable[[], None]) -> None:
        """Until we have left; everything else that ends it is an exception."""
        self._joined.clear()
        self._refused.clear()
        link.send(next(encode_frames([Hello(VERSION, str(address.site), address.incarnation)])))
        heartbeat = self._welcome(link)
        self.heard = True
        self._say(link, [*self._everything(), *self._take(again=True)])
        confirmed()
        heard = spoke = monotonic()
        while not self.over:
            # What becomes due right after a frame waits a little, so that more can join it.
            waiting = [link.socket] if self._rung else [link.socket, self._ears]
            pause = spoke + (_LINGER if self._rung else heartbeat) - monotonic()
            ready, _, _ = select.select(waiting, [], [], max(0.0, pause))
            now = monotonic()
            if link.socket in ready:
                heard = now
                self._hear([item for frame in link.receive() for item in decode_down(frame)], address, confirmed)
            if now - heard > 3 * heartbeat:
                raise LinkError("the coordinator has fallen silent")
            items = self._take() if self._rung and now - spoke >= _LINGER else []
            if not items and now - spoke >= heartbeat:
                items = [Sync(self._sent)]
            if items:
                spoke = now
                self._say(link, items)

    def _welcome(self, link: Link) -> float:
        deadline = monotonic() + _PATIENCE
        while True:
            if not select.select([link.socket], [], [], max(0.0, deadline - monotonic()))[0]:
                raise LinkError("the coordinator does not answer")
            for frame in link.receive():
                for item in decode_down(frame):
                    if isinstance(item, Welcome):
                        return max(0.01, item.heartbeat / 1000)
                    if isinstance(item, Buried):
                        raise Reborn(dict(item.known))

    @staticmethod
    def _say(link: Link, items: list[UpItem]) -> None:
        for frame in encode_frames(items):
            link.send(frame)

    def _everything(self) -> list[UpItem]:
        """What a new connection must be told: every counter that has counted anything."""
        with self._lock:
            names = list(self._meters)
            self._due.clear()
        items: list[UpItem] = []
        for name in names:  # the lock is taken anew each time, so that nobody who counts waits for all of them
            with self._lock:
                items += self._introduce(name)
        return items

    def _introduce(self, name: str) -> list[UpItem]:
        hello, resume = self._meters[name].hello()
        if not hello.count or name in self._left:
            return []
        self._joined.add(name)
        return [Join(*hello), *resume]

    def _take(self, again: bool = False) -> list[UpItem]:
        """All that is due, and the question whether it has arrived if anybody asks (`again`: or asked before)."""
        with self._lock:
            self._quiet()
            due, self._due = self._due, {}
            items: list[UpItem] = []
            for (name, _), message in due.items():
                if name in self._joined:
                    items.append(message)
                else:
                    items += self._introduce(name)
            if self._leaving:
                items += self._last_words()
            if again or self._asked > self._sent:
                self._sent = self._asked
                items.append(Sync(self._sent))
        return items

    def _quiet(self) -> None:
        with suppress(BlockingIOError):
            self._ears.recv(64)
        self._rung = False

    def _last_words(self) -> list[UpItem]:
        items: list[UpItem] = []
        for name, meter in self._meters.items():
            farewell = meter.hello()[0]
            if name in self._left:
                continue
            if not farewell.count:  # it never said a word
                self._left.add(name)
                continue
            if name not in self._joined:
                items += self._introduce(name)
            items.append(Leave(*farewell))
        self._look_whether_all_have_left()
        return items

    def _look_whether_all_have_left(self) -> None:
        if self._leaving and self._left | self._refused >= self._meters.keys():
            self.delivered, self.over = self._left >= self._meters.keys(), True

    def _hear(self, items: list[DownItem], address: Address, confirmed: Callable[[], None]) -> None:
        for item in items:
            if isinstance(item, StartRound | Repace):
                self._obey(item)
            elif isinstance(item, Synced):
                self.confirmed = max(self.confirmed, item.number)
                confirmed()
            elif isinstance(item, Left):
                self._left.add(item.counter)
                self._look_whether_all_have_left()
            elif isinstance(item, Again):
                self._begin_again(item, address)
            elif isinstance(item, Refused):
                log.warning("the coordinator does not take counter %r in: %s", item.counter, item.reason)
                self._refused.add(item.counter)
                self._look_whether_all_have_left()

    def _obey(self, message: StartRound | Repace) -> None:
        with self._lock:
            meter = self._meters.get(message.counter)
            if meter is not None and meter.open:
                self.queue(message.counter, meter.receive(message))

    def _begin_again(self, again: Again, address: Address) -> None:
        with self._lock:
            meter = self._meters.get(again.counter)
            if meter is None:
                return

            def site_with(count: int) -> Site:
                return Site(again.counter, address, SystemDice(), count=count)

            meter.reborn(site_with, 0 if again.keep else None)
            self._joined.discard(again.counter)
            if again.keep:
                self.queue(
                    again.counter, (Snapshot(again.counter, 0, 0),)
                )  # only to be asked for: it says hello instead
