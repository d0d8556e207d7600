"""What dead processes have left in a state directory is delivered by the next one that uses it.

A file that can be locked has lost its process. The heir says the last words of that life in its name: the same address,
and for each counter the round and the exact count that the file tells, as the process would have done on closing its
client. The coordinator merges by maximum, so words that are said twice are said once. Should it have given that life up
already, it says how much it knows, and the rest is delivered by another life, which is in the file before a word of it
is said. At every instant the file tells all that may not have been delivered, in words that may be repeated.
"""

import logging
import select
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, RLock, Thread

from countless.client.durable.count_file import SUFFIX, CountFile, StateError
from countless.client.durable.record import Cells
from countless.client.session.backoff import Backoff
from countless.client.session.protocol import Reborn, Talk, new_incarnation
from countless.client.session.wakeup import Bell
from countless.client.transport.websocket import ConnectionLost, WebSocketConnection
from countless.core.messages import DownMessage, Snapshot, UpMessage
from countless.core.site import Site
from countless.errors import ProtocolError

log = logging.getLogger("countless")


class LastWord:
    """A counter of a process that has died: it says how far it came, and nothing else."""

    open = False

    def __init__(self, counter: str, cells: Cells) -> None:
        self._counter = counter
        self._cells = cells

    def hello(self) -> tuple[Snapshot, tuple[UpMessage, ...]]:
        """The exact count, and all that may have been lost."""
        return self._cells.hello(self._counter), self._cells.resume(self._counter)

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        """Nobody is there."""
        return ()

    def reborn(self, site_with: Callable[[int], Site], settled: int | None) -> None:
        """Begin again with what was counted beyond `settled`; None: with nothing."""
        counted, count = self._cells.counted, self._cells.count
        self._cells.settle(counted - (0 if settled is None else max(0, count - settled)))


class Heir:
    """A thread that lives until nothing is left to deliver, or nothing that can be."""

    def __init__(self, directory: Path, connect: Callable[[], WebSocketConnection], lock: RLock) -> None:
        self._directory = directory
        self._connect = connect
        self._lock = lock  # held around a fork: what is open must be known then
        self._given_up: set[Path] = set()
        self._over = Event()
        self._tried = Event()  # everything, once
        self._file: CountFile | None = None
        self._bell: Bell | None = None
        self._link: WebSocketConnection | None = None
        self._thread = Thread(target=self._run, name="countless-heir", daemon=True)

    def start(self) -> None:
        """Begin, in the background."""
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is going down: the next process will
            self._tried.set()

    def stop(self, timeout: float) -> None:
        """Wait until everything was tried once; then no more."""
        self._tried.wait(timeout)
        self._over.set()
        with self._lock:
            if self._bell is not None:
                self._bell.ring()

    def drop(self) -> None:
        """In a forked child: these are the parent's."""
        if self._link is not None:
            self._link.abandon()
        if self._bell is not None:
            self._bell.close()
        if self._file is not None:
            self._file.release()

    def _run(self) -> None:
        backoff = Backoff()
        try:
            while not self._over.is_set() and not self._try_all():
                self._tried.set()
                self._over.wait(backoff.next())
        finally:
            self._tried.set()

    def _try_all(self) -> bool:
        try:
            paths = set(self._directory.glob(f"*{SUFFIX}")) - self._given_up
        except OSError:  # the directory has vanished, and all that was in it
            return True
        return not [path for path in sorted(paths) if not self._try(path)]

    def _try(self, path: Path) -> bool:
        """False: it is worth trying again."""
        try:
            with self._lock:
                file = self._file = CountFile.adopt(path)
            if file is not None:
                self._deliver(file)
        except (ConnectionLost, ProtocolError) as error:
            log.info("what is left in %s is not delivered yet: %s", path, error)
            return False
        except (StateError, OSError) as error:
            self._give_up(path, str(error))
        finally:
            with self._lock:
                if self._file is not None:
                    self._file.release()
                    self._file = None
        return True

    def _give_up(self, path: Path, reason: str) -> None:
        log.warning("%s; it is left as it is, and what was counted there is not delivered", reason)
        self._given_up.add(path)

    def _deliver(self, file: CountFile) -> None:
        while words := {name: LastWord(name, cells) for name, cells in file.cells.items() if cells.count}:
            try:
                if self._speak(file, words):
                    break
            except Reborn as news:
                file.begin_again(new_incarnation(), news.known)
                continue
            if self._over.is_set():
                return
            raise StateError(f"the coordinator does not take in all of {file.path}")
        file.delete()

    def _speak(self, file: CountFile, words: dict[str, LastWord]) -> bool:
        """Whether the coordinator knows it all now."""
        with self._lock:
            bell = self._bell = Bell()
        talk = Talk(file.site_id, RLock(), bell.ring)
        for name, word in words.items():
            talk.include(name, word)
        talk.needed = True
        talk.leave()
        try:
            self._link = self._connect()
            self._converse(talk, self._link, bell)
            return talk.delivered
        finally:
            if self._link is not None:
                self._link.close()
            with self._lock:
                bell.close()
                self._bell = self._link = None

    def _converse(self, talk: Talk, link: WebSocketConnection, bell: Bell) -> None:
        speaking = talk.converse(link.send, lambda: None)
        with suppress(StopIteration):  # all is said
            pause = next(speaking)
            while not self._over.is_set():
                ready, _, _ = select.select([link.socket, bell.ears], [], [], pause)
                bell.quiet()
                pause = speaking.send(link.receive() if link.socket in ready else [])
