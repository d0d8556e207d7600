"""The counters of one session: what is due to be sent, which have joined on the present stream, and which have left."""

from collections.abc import Callable
from threading import RLock
from typing import Protocol

from countless.client.session.known import Known
from countless.client.session.rejections import RejectionLog
from countless.client.session.windows import SessionWindows, WindowsState
from countless.core.messages import DownMessage, SetTrigger, SiteId, Snapshot, StartRound, UpMessage
from countless.wire.frames import CounterRejected, Join, Leave, LeaveAck, Rejoin, UpItem
from countless.wire.keys import Key


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
        self._counters: dict[Key, CounterState] = {}
        self._keys: dict[str, Key] = {}  # of these, by the text that frames have
        self._unsent: dict[Key, dict[type[UpMessage], UpMessage]] = {}  # by counter
        self._sent: dict[Key, int] = {}  # the largest count that this incarnation has sent
        self._joined: set[Key] = set()  # on the present stream
        self._left: set[Key] = set()
        self._leaving = False
        self._rejected: dict[Key, str] = {}  # on the present stream, with the reasons
        self._rejections = RejectionLog("counter")

    def add(self, key: Key, counter: CounterState) -> None:
        self._counters[key] = counter
        self._keys[str(key)] = key
        self.windows.add_counter(key)

    def add_windows(self, windows: WindowsState) -> None:
        self.windows.add(windows)

    def queue(self, key: Key, messages: tuple[UpMessage, ...]) -> None:
        """Send these soon. Messages are cumulative: a later report replaces an earlier one that was not sent yet."""
        unsent = self._unsent.setdefault(key, {})
        for message in messages:
            unsent.pop(type(message), None)
            unsent[type(message)] = message
        self._notify()

    def renew(self, site_id: SiteId, known: Known) -> None:
        """Continue as a new incarnation, with the events that are not among the known ones."""
        for key, counter in self._counters.items():
            counter.reset(site_id, counter.count if known.has_left(key) else known.counts.get(key, 0))
        self._sent.clear()

    @property
    def counted(self) -> bool:
        return any(counter.count for counter in self._counters.values())

    @property
    def sent(self) -> dict[Key, int]:
        """By counter, the largest count that this incarnation has sent, on any stream."""
        return dict(self._sent)

    @property
    def rejected(self) -> dict[str, str]:
        """Counters that the coordinator has rejected on the present stream, with its reasons."""
        return {key.in_words: reason for key, reason in self._rejected.items()}

    # Joining and sending

    def initial_items(self) -> list[UpItem]:
        """What a new stream begins with: all counters that have counted anything. Takes the lock."""
        with self._lock:
            keys = list(self._counters)
            self._unsent.clear()
            self._joined.clear()
            self._rejected.clear()
            self.windows.new_stream()
        items: list[UpItem] = []
        for key in keys:  # the lock is released after each, so that a thread that counts does not wait for all
            with self._lock:
                items += self._join_items(key)
        return items

    def drain(self) -> list[UpItem]:
        """Take all that is due."""
        unsent, self._unsent = self._unsent, {}
        items: list[UpItem] = []
        for key, messages in unsent.items():
            if key in self._joined:
                items += messages.values()
                self._note_sent(key, *(message.count for message in messages.values()))
            else:
                items += self._join_items(key)
        while (window := self.windows.pop_due()) is not None:
            items += self._leave_items(window)
        return items

    def _join_items(self, key: Key) -> list[UpItem]:
        counter = self._counters.get(key)
        if counter is None or key in self._left or self.windows.is_rejected(key):
            return []
        snapshot, resent = counter.rejoin_messages()
        if not snapshot.count and not counter.announced:
            return []
        self._joined.add(key)
        self._note_sent(key, snapshot.count)
        return [Join(*snapshot), *(resent if snapshot.count else ())]

    def _note_sent(self, key: Key, *counts: int) -> None:
        self._sent[key] = max([self._sent.get(key, 0), *counts])

    def _join_again(self, key: Key) -> None:
        self._joined.discard(key)
        self._rejected.pop(key, None)
        self.queue(key, ())

    # Leaving

    def leave(self) -> None:
        """Windows leave in their order: `drain` has the first ones."""
        self._leaving = True
        self.windows.finish_all(self._counters)

    def leave_items(self) -> list[UpItem]:
        """For all counters but windows."""
        others = [key for key in self._counters if not key.is_window and key not in self._left]
        return [item for key in others for item in self._leave_items(key)]

    def _leave_items(self, key: Key) -> list[UpItem]:
        counter = self._counters[key]
        final = counter.rejoin_messages()[0]
        if not final.count and not counter.announced:  # the coordinator knows nothing of it
            self._has_left(key)
            return []
        self._note_sent(key, final.count)
        return [*([] if key in self._joined else self._join_items(key)), Leave(*final)]

    def on_leave_ack(self, item: LeaveAck) -> None:
        """A counter without windows does not leave before the client does."""
        key = self._keys.get(item.counter)
        if key is not None and (self._leaving or key.is_window):
            self._has_left(key)

    def _has_left(self, key: Key) -> None:
        if not key.is_window:
            self._left.add(key)
        elif self.windows.left(key):
            del self._counters[key], self._keys[str(key)]
            self._unsent.pop(key, None)
            self._sent.pop(key, None)
            self._joined.discard(key)
            self._rejected.pop(key, None)

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
        key = self._keys.get(message.counter)
        if key is None:
            return
        counter = self._counters[key]
        if counter.open and (replies := counter.receive(message)):
            self.queue(key, replies)

    def on_rejoin(self, rejoin: Rejoin, site_id: SiteId) -> None:
        key = self._keys.get(rejoin.counter)
        if key is None:
            return
        self._counters[key].reset(site_id, None)
        self._joined.discard(key)
        self._sent.pop(key, None)
        self.windows.leave_again(key)

    def on_rejected(self, item: CounterRejected) -> None:
        key = self._keys.get(item.counter)
        if key is None:
            return
        if self.windows.reject(key, self._clock()):
            self._rejections.warn(key.in_words, item.reason)
        self._rejected[key] = item.reason
