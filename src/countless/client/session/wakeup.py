"""A bell that any thread may ring to wake the one that waits for sockets."""

import socket
from contextlib import suppress


class Bell:
    """Ringing twice before anybody listened is like ringing once."""

    def __init__(self) -> None:
        self.ears, self._button = socket.socketpair()
        self.ears.setblocking(False)
        self._button.setblocking(False)

    def ring(self) -> None:
        """Wake the thread."""
        with suppress(OSError):  # it rings already, or the thread has ended
            self._button.send(b"!")

    def quiet(self) -> None:
        """It was heard."""
        with suppress(BlockingIOError):
            self.ears.recv(64)

    def close(self) -> None:
        """The thread has ended, or was left behind by a fork."""
        self.ears.close()
        self._button.close()
