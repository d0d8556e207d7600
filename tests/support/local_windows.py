"""The windows of one counter, as a client keeps them, on clocks that are numbers."""

from functools import partial
from threading import RLock

from countless.client.durable.count_file import CountFile
from countless.client.durable.counter import DurableCounter
from countless.client.local_counter import LocalCounter
from countless.client.local_windows import LocalCounterWindows
from countless.core.messages import SiteId, UpMessage
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.wire.keys import ALL, COUNTER, Key
from support.rng import NO_RANDOM

MINUTE = 30_000_000  # by its number
SITE_ID = SiteId("here", 1)
HITS = Key(COUNTER, "hits", "minute", ALL)


def name(minute: int) -> str:
    return str(HITS.window(minute))


class RecordedWindows:
    """Windows of one kind ("plain", "durable", "locked"), what they have reported, and what has left."""

    def __init__(self, kind: str = "plain", spread: float = 0.0, trigger: EveryNth | None = None) -> None:
        self.now = MINUTE * 60.0
        self.monotonic = 0.0
        self.lock = RLock()
        self.counters: dict[str, LocalCounter] = {}  # by the text of the window
        self.finished: list[str] = []
        self.left: dict[str, int] = {}  # final counts
        self.messages: list[UpMessage] = []
        self.file = None if kind == "plain" else CountFile.in_memory(SITE_ID)
        self._trigger = trigger or EveryNth(1)
        self.windows = LocalCounterWindows(HITS, spread, self.lock, lambda: self.now, self._new, self._remove)

    def _new(self, key: Key) -> LocalCounter:
        """As the client does it."""
        name = str(key)
        if name not in self.counters:
            site = Site(name, SITE_ID, NO_RANDOM, trigger=self._trigger)
            deliver = partial(self._deliver, key)
            if self.file is None:
                counter = LocalCounter(site, self.lock, deliver)
            else:
                counter = DurableCounter(site, self.lock, deliver, self.file.allocate(key))
            self.counters.setdefault(name, counter)
        return self.counters[name]

    def _remove(self, key: Key) -> None:
        name = str(key)
        counter = self.counters.pop(name)
        assert name not in self.left
        self.left[name] = counter.count
        if self.file is not None:
            assert self.file.records(Key)[key].count == counter.count
            self.file.free(key)

    def _deliver(self, key: Key, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.messages += messages

    def tick(self, leave: bool = True) -> str | None:
        """The window that is announced. With `leave`, windows that are finished are delivered at once."""
        with self.lock:
            announced, finished = self.windows.tick(self.monotonic)
            self.finished += map(name, finished)
            for period in finished if leave else ():
                self.windows.left(period)
        return None if announced is None else name(announced)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.monotonic += seconds

    def counts(self) -> dict[str, int]:
        """By window, of this process and of what has left."""
        with self.lock:
            open_counts = {name: counter.count for name, counter in self.counters.items()}
        return {**open_counts, **self.left}
