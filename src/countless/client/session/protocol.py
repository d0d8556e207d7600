"""What a client and a coordinator say to each other on one line after another.

The conversation is a generator: it says how long it has nothing to do, and is told what has arrived; whoever owns the
sockets does the waiting. All that is due goes in one frame. Nothing that was queued needs to survive a broken line: on
the next one every counter says its exact count and, again, whatever may have been lost.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from threading import RLock
from time import monotonic, time
from typing import Protocol

from countless.client.transport.websocket import ConnectionLost
from countless.core.messages import DownMessage, SetTrigger, SiteId, Snapshot, StartRound, UpMessage
from countless.core.site import Site
from countless.randomness import SystemRandom
from countless.wire.frames import (
    VERSION,
    CounterRejected,
    DownItem,
    Hello,
    HelloAck,
    IncarnationRetired,
    Join,
    Leave,
    LeaveAck,
    Rejoin,
    Sync,
    SyncAck,
    UpItem,
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
    return (int(time()) << 30) | SystemRandom().randbelow(1 << 30)


AnotherLife = Callable[[SiteId], AbstractContextManager[None]]  # while it lasts all counters are reborn


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
    """What is due to one shard, what it has confirmed, and how to say it."""

    def __init__(self, site_id: SiteId, lock: RLock, poke: Callable[[], None]) -> None:
        self.site_id = site_id
        self.confirmed = 0  # the last `ask` that was answered
        self.needed = False  # there is something to say, or was
        self.over = False  # nothing more is to be said
        self.delivered = False  # ... because we have left, and the coordinator knows all
        self.heard = False  # on this line
        self._meters: dict[str, Voice] = {}
        self._lock = lock
        self._poke = poke
        self._asked = self._sent = 0
        self._leaving = False
        self._due: dict[tuple[str, type[UpMessage]], UpMessage] = {}
        self._joined: set[str] = set()  # on this line
        self._left: set[str] = set()
        self._refused: set[str] = set()  # on this line
        self._rung = False

    # For the program's threads, under the lock

    def include(self, counter: str, meter: Voice) -> None:
        """This shard has this counter."""
        self._meters[counter] = meter

    def queue(self, counter: str, messages: tuple[UpMessage, ...]) -> None:
        """To be sent soon. Of two reports only the later matters: it says all that the earlier one said."""
        for message in messages:
            key = (counter, type(message))
            self._due.pop(key, None)
            self._due[key] = message
        self.needed = True
        self._ring()

    def ask(self, number: int) -> None:
        """For a confirmation that everything so far has arrived."""
        self._asked = number
        self._ring()

    def leave(self) -> None:
        """Say the last words, if there were any before."""
        self._leaving = True
        self.over = self.delivered = not self.needed
        self._ring()

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._poke()

    # For the thread

    def reborn(self, known: dict[str, int], another_life: AnotherLife) -> None:
        """Another life, with all that is not `known` of the one before."""
        site_id = SiteId(self.site_id.site, new_incarnation())
        with self._lock, another_life(site_id):
            self.site_id = site_id
            for name, meter in self._meters.items():

                def site_with(count: int, name: str = name) -> Site:
                    return Site(name, site_id, SystemRandom(), count=count)

                meter.reborn(site_with, known.get(name, 0))

    def converse(
        self, send: Callable[[bytes], None], confirmed: Callable[[], None]
    ) -> Generator[float, list[bytes], None]:
        """Until we have left; everything else that ends it is an exception."""
        self._joined.clear()
        self._refused.clear()
        send(next(encode_frames([Hello(VERSION, str(self.site_id.site), self.site_id.incarnation)])))
        heartbeat = yield from self._welcome()
        self.heard = True
        self._say(send, [*self._everything(), *self._take(again=True)])
        confirmed()
        heard = spoke = asked = monotonic()
        while not self.over:
            # Neither side may be silent for long: whoever reports all the time must ask too, or hears nothing.
            silence = min(spoke, max(heard, asked))
            # What becomes due right after a frame waits a little, so that more can join it.
            frames = yield max(0.0, (spoke + _LINGER if self._rung else silence + heartbeat) - monotonic())
            now = monotonic()
            if frames:
                heard = now
                self._hear([item for frame in frames for item in decode_down(frame)], confirmed)
            if now - heard > 3 * heartbeat:
                raise ConnectionLost("the coordinator has fallen silent")
            items = self._take() if self._rung and now - spoke >= _LINGER else []
            if now - min(spoke, max(heard, asked)) >= heartbeat:
                items.append(Sync(self._sent))
                asked = now
            if items:
                spoke = now
                self._say(send, items)

    @staticmethod
    def _welcome() -> Generator[float, list[bytes], float]:
        deadline = monotonic() + _PATIENCE
        while True:
            frames = yield max(0.0, deadline - monotonic())
            for frame in frames:
                for item in decode_down(frame):
                    if isinstance(item, HelloAck):
                        return max(0.01, item.heartbeat_ms / 1000)
                    if isinstance(item, IncarnationRetired):
                        raise Reborn(dict(item.known_counts))
            if monotonic() >= deadline:
                raise ConnectionLost("the coordinator does not answer")

    @staticmethod
    def _say(send: Callable[[bytes], None], items: list[UpItem]) -> None:
        for frame in encode_frames(items):
            send(frame)

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
            self._rung = False
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

    def _hear(self, items: list[DownItem], confirmed: Callable[[], None]) -> None:
        for item in items:
            if isinstance(item, StartRound | SetTrigger):
                self._obey(item)
            elif isinstance(item, SyncAck):
                self.confirmed = max(self.confirmed, item.number)
                confirmed()
            elif isinstance(item, LeaveAck):
                self._left.add(item.counter)
                self._look_whether_all_have_left()
            elif isinstance(item, Rejoin):
                self._begin_again(item)
            elif isinstance(item, CounterRejected):
                log.warning("the coordinator does not take counter %r in: %s", item.counter, item.reason)
                self._refused.add(item.counter)
                self._look_whether_all_have_left()

    def _obey(self, message: StartRound | SetTrigger) -> None:
        with self._lock:
            meter = self._meters.get(message.counter)
            if meter is not None and meter.open:
                self.queue(message.counter, meter.receive(message))

    def _begin_again(self, again: Rejoin) -> None:
        with self._lock:
            meter = self._meters.get(again.counter)
            if meter is None:
                return

            def site_with(count: int) -> Site:
                return Site(again.counter, self.site_id, SystemRandom(), count=count)

            meter.reborn(site_with, 0 if again.keep_count else None)
            self._joined.discard(again.counter)
            if again.keep_count:
                self.queue(
                    again.counter, (Snapshot(again.counter, 0, 0),)
                )  # only to be asked for: it says hello instead
