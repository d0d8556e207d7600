"""The counters of one session: what is due to be sent, which have joined on the present stream, and which have left."""

from collections.abc import Callable
from threading import RLock
from typing import Protocol

from countless.client.session.rejections import RejectionLog
from countless.client.session.windows import SessionWindows, WindowsState
from countless.core.messages import DownMessage, SetTrigger, SiteId, Snapshot, StartRound, UpMessage
from countless.wire.frames import CounterRejected, Join, Leave, Rejoin, UpItem
from countless.wire.windows import parse_window


class CounterState(Protocol):
    """A counter of this incarnation: a `LocalCounter`, or what a process that ended has left of one."""

    announced: bool  # the coordinator may know it although it has counted nothing

    @property
    def open(self) -> bool: ...

    @property
    def count(self) -> int: ...

    def rejoin_messages(self) -> tuple[Snapshot, tuple[UpMessage, ...]]:
        """The exact count, and every message that may have been lost with the last connection."""

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        """Apply a message of the coordinator and return the site's reply."""

    def reset(self, site_id: SiteId, delivered: int | None) -> None:
        """Continue as a new incarnation with the events beyond the first `delivered`; None: with none of them."""


class SessionCounters:
    """Methods that take the lock say so; all others are called with it. `notify`: there is something to `drain`.

    A window that is finished leaves while the session goes on, and is forgotten then. All other counters leave together
    when the client is closed.
    """

    def __init__(self, lock: RLock, notify: Callable[[], None], clock: Callable[[], float]) -> None:
        self._lock = lock
        self._notify = notify
        self._clock = clock
        self.windows = SessionWindows(lock, self._join_again, notify)
        self._counters: dict[str, CounterState] = {}
        self._unsent: dict[str, dict[type[UpMessage], UpMessage]] = {}  # by counter
        self._sent: dict[str, int] = {}  # the largest count that this incarnation has sent
        self._joined: set[str] = set()  # on the present stream
        self._left: set[str] = set()
        self._leaving = False
        self._rejected: dict[str, str] = {}  # on the present stream, with the reasons
        self._rejections = RejectionLog("counter")

    def add(self, name: str, counter: CounterState) -> None:
        self._counters[name] = counter
        self.windows.add_counter(name)

    def add_windows(self, series: str, windows: WindowsState) -> None:
        self.windows.add(series, windows)

    def queue(self, name: str, messages: tuple[UpMessage, ...]) -> None:
        """Send these soon. Messages are cumulative: a later report replaces an earlier one that was not sent yet."""
        unsent = self._unsent.setdefault(name, {})
        for message in messages:
            unsent.pop(type(message), None)
            unsent[type(message)] = message
        self._notify()

    def renew(self, site_id: SiteId, known_counts: dict[str, int]) -> None:
        """Continue as a new incarnation, with the events that are not among the known ones."""
        for name, counter in self._counters.items():
            counter.reset(site_id, _delivered(name, counter, known_counts))
        self._sent.clear()

    @property
    def counted(self) -> bool:
        return any(counter.count for counter in self._counters.values())

    @property
    def sent(self) -> dict[str, int]:
        """By counter, the largest count that this incarnation has sent, on any stream."""
        return dict(self._sent)

    @property
    def rejected(self) -> dict[str, str]:
        """Counters that the coordinator has rejected on the present stream, with its reasons."""
        return dict(self._rejected)

    # Joining and sending

    def initial_items(self) -> list[UpItem]:
        """What a new stream begins with: all counters that have counted anything. Takes the lock."""
        with self._lock:
            names = list(self._counters)
            self._unsent.clear()
            self._joined.clear()
            self._rejected.clear()
            self.windows.new_stream()
        items: list[UpItem] = []
        for name in names:  # the lock is released after each, so that a thread that counts does not wait for all
            with self._lock:
                items += self._join_items(name)
        return items

    def drain(self) -> list[UpItem]:
        """Take all that is due."""
        unsent, self._unsent = self._unsent, {}
        items: list[UpItem] = []
        for name, messages in unsent.items():
            if name in self._joined:
                items += messages.values()
                self._note_sent(name, *(message.count for message in messages.values()))
            else:
                items += self._join_items(name)
        while (name_due := self.windows.pop_due()) is not None:
            items += self._leave_items(name_due)
        return items

    def _join_items(self, name: str) -> list[UpItem]:
        counter = self._counters.get(name)
        if counter is None or name in self._left or self.windows.is_rejected(name):
            return []
        snapshot, resent = counter.rejoin_messages()
        if not snapshot.count and not counter.announced:
            return []
        self._joined.add(name)
        self._note_sent(name, snapshot.count)
        return [Join(*snapshot), *(resent if snapshot.count else ())]

    def _note_sent(self, name: str, *counts: int) -> None:
        self._sent[name] = max([self._sent.get(name, 0), *counts])

    def _join_again(self, name: str) -> None:
        self._joined.discard(name)
        self._rejected.pop(name, None)
        self.queue(name, ())

    # Leaving

    def leave(self) -> None:
        """Windows leave in their order: `drain` has the first ones."""
        self._leaving = True
        self.windows.finish_all(self._counters)

    def leave_items(self) -> list[UpItem]:
        """For all counters but windows."""
        others = [name for name in self._counters if parse_window(name) is None and name not in self._left]
        return [item for name in others for item in self._leave_items(name)]

    def _leave_items(self, name: str) -> list[UpItem]:
        counter = self._counters[name]
        final = counter.rejoin_messages()[0]
        if not final.count and not counter.announced:  # the coordinator knows nothing of it
            self._has_left(name)
            return []
        self._note_sent(name, final.count)
        return [*([] if name in self._joined else self._join_items(name)), Leave(*final)]

    def on_leave_ack(self, name: str) -> None:
        """A counter without windows does not leave before the client does."""
        if name in self._counters and (self._leaving or parse_window(name) is not None):
            self._has_left(name)

    def _has_left(self, name: str) -> None:
        if parse_window(name) is None:
            self._left.add(name)
        elif self.windows.left(name):
            del self._counters[name]
            self._unsent.pop(name, None)
            self._sent.pop(name, None)
            self._joined.discard(name)
            self._rejected.pop(name, None)

    @property
    def delivered(self) -> bool:
        return self._left >= self._counters.keys()

    @property
    def all_left(self) -> bool:
        """Nothing more can leave on this stream."""
        if not self._rejected:
            return self.delivered
        rejected = self._rejected.keys()
        return self._left | rejected | self.windows.behind(rejected) >= self._counters.keys()

    # What the coordinator sends

    def on_trigger(self, message: StartRound | SetTrigger) -> None:
        counter = self._counters.get(message.counter)
        if counter is not None and counter.open and (replies := counter.receive(message)):
            self.queue(message.counter, replies)

    def on_rejoin(self, rejoin: Rejoin, site_id: SiteId) -> None:
        name, counter = rejoin.counter, self._counters.get(rejoin.counter)
        if counter is None:
            return
        counter.reset(site_id, None)
        self._joined.discard(name)
        self._sent.pop(name, None)
        self.windows.leave_again(name)

    def on_rejected(self, item: CounterRejected) -> None:
        if self.windows.reject(item.counter, self._clock()):
            self._rejections.warn(item.counter, item.reason)
        self._rejected[item.counter] = item.reason


def _delivered(name: str, counter: CounterState, known_counts: dict[str, int]) -> int:
    """How much of a counter is on the coordinator's disk. Of the windows that left, it knows the number of the last."""
    window = parse_window(name)
    if window is not None and window.period < known_counts.get(window.group, 0):
        return counter.count
    return known_counts.get(name, 0)
