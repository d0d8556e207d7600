"""A thread that waits for data of its sockets, or for a notification."""

import selectors
import socket
from collections.abc import Sequence
from contextlib import suppress

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
