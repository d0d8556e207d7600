"""The client's `state_dir`: meters whose counts are in a file, and the file of this life.

A kept meter is a meter. Its tickets write themselves down (`Cells.tickets`), which is all that the hot path notices;
and since the last ticket can be read from the file, looking at the count takes no blank one.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from countless.client.durable.count_file import CountFile, StateError
from countless.client.durable.record import Cells
from countless.client.durable.recovery import Heir
from countless.client.local_counter import AT_ONCE, ONE, LocalCounter
from countless.client.transport.websocket import WebSocketConnection
from countless.core.messages import DownMessage, SiteId, Snapshot, UpMessage
from countless.core.site import Site, require_increment

if TYPE_CHECKING:
    from countless.client.local_counter import Deliver

log = logging.getLogger("countless")


class DurableCounter(LocalCounter):
    """A meter that survives its process."""

    __slots__ = ("_cells", "_say")

    def __init__(self, site: Site, lock: RLock, deliver: "Deliver", cells: Cells) -> None:
        super().__init__(site, lock, self._note_and_say)
        self._say = deliver
        self.keep_in(cells)

    def _note_and_say(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self._cells.note(site)
        self._say(site, messages)

    def keep_in(self, cells: Cells) -> None:
        """From now on, and from nothing."""
        self._cells = cells
        self._tickets = cells.tickets(self._lock)
        self._looks = cells.looks()
        self._blank = 0  # the last ticket is in the file: to look at it takes none
        self._surplus = 0

    def add(self, n: int = ONE) -> None:
        """`n` more events have happened here: they are written down before anybody hears of them."""
        if n is not ONE:
            require_increment(n)
            with self._lock:
                if n and self.open:  # file and count, with nothing between them: even Ctrl-C must find them agree
                    self._cells.add(n)
                    self._due = AT_ONCE
                    self._surplus += n
                super().add(0)
        elif next(self._tickets) >= self._due:
            super().add(0)

    inc = add

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        """The coordinator spoke; what the site answers is written down first."""
        messages = super().receive(message)
        self._cells.note(self._site)
        return messages

    def reborn(self, site_with: Callable[[int], Site], settled: int | None) -> None:
        """Another life, which begins with what the earlier one counted beyond `settled`; None: with nothing."""
        super().reborn(site_with, settled)
        self._cells.settle(self._cells.batched - self._surplus)

    def close(self) -> Snapshot:
        """The site's last words; whoever adds from now on is told that it is gone, and nothing is written down."""
        try:
            return super().close()
        finally:
            self._tickets = count(1)


class Keeper:
    """The file of the client's present life, and what others have left beside it."""

    def __init__(
        self, directory: Path, site_id: SiteId, connect: Callable[[], WebSocketConnection], lock: RLock
    ) -> None:
        self._directory = directory
        self._connect = connect
        self._lock = lock
        self._file = CountFile.create(directory, site_id)
        self._heir: Heir | None = None
        self.inherit()

    def inherit(self) -> None:
        """Deliver what dead processes have left, in the background: once in a life."""
        if self._heir is None:
            self._heir = Heir(self._directory, self._connect, self._lock)
            self._heir.start()

    def meter(self, site: Site, lock: RLock, deliver: "Deliver") -> LocalCounter:
        """A meter that is written down."""
        return DurableCounter(site, lock, deliver, self._file.allocate(site.counter))

    def move(self, site_id: SiteId, meters: Mapping[str, LocalCounter]) -> None:
        """In a forked child: a file of its own, from nothing. The other one, and its lock, are the parent's."""
        self._file.release()
        if self._heir is not None:
            self._heir.drop()
            self._heir = None
        try:
            self._file = CountFile.create(self._directory, site_id)
        except StateError as error:  # a fork must not fail for that
            log.warning("%s: what this process counts is kept in memory only", error)
            self._file = CountFile.in_memory(site_id)
        for name, meter in meters.items():
            if isinstance(meter, DurableCounter):
                meter.keep_in(self._file.allocate(name))

    @contextmanager
    def another_life(self, incarnation: int) -> Iterator[None]:
        """While this lasts all meters are reborn; when it is over, the file tells of the new life, at once."""
        self._file.turn()
        yield
        self._file.commit(incarnation)

    def end(self, settled: bool, timeout: float) -> None:
        """Nothing more is counted. What was not delivered stays for the next process."""
        if self._heir is not None:
            self._heir.stop(max(0.0, timeout))
        if settled:
            self._file.delete()
        else:
            self._file.release()
