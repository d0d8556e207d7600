"""A notification for a thread that waits in `select`."""

import socket
from contextlib import suppress


class Wakeup:
    """Any thread may `notify`; the waiting thread selects on `reader` and calls `drain`, once for several."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def notify(self) -> None:
        with suppress(OSError):  # a notification is pending already, or the thread has ended
            self._writer.send(b"!")

    def drain(self) -> None:
        with suppress(BlockingIOError):
            self.reader.recv(64)

    def close(self) -> None:
        self.reader.close()
        self._writer.close()
