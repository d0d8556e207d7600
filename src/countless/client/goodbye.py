"""SIGTERM: a program that has no handler of its own says goodbye before it ends.

Python runs no `atexit` functions when a signal ends the process, so without this the coordinator would wait for a
process that is gone. We install a handler only where the system's default action would end the process, and never
replace one. A program that installs its own later replaces ours; it should exit normally, or call `Client.close`.

uvicorn handles SIGTERM while it serves. At the end it restores what was there before it loaded the application, and
raises the signal again, which ends a worker (`--workers 2`) at once. So we close the clients when it has shut down.
"""

import os
import signal
from threading import Timer, current_thread, main_thread
from types import FrameType
from typing import Any

from countless.client import forks

RETRY_S = 0.002
MAX_RETRIES = 500  # a call of ours holds its lock for some microseconds, so one is nearly always enough


def install() -> bool:
    """True if our handler is in place now. Only the main thread can install one."""
    _close_after_uvicorn(getattr(signal.getsignal(signal.SIGTERM), "__self__", None))
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, SigtermHandler())
    return True


def _close_after_uvicorn(server: Any) -> None:
    if type(server).__module__ != "uvicorn.server" or getattr(server.shutdown, "__module__", "") == __name__:
        return
    shut_down = server.shutdown

    async def shut_down_and_close(*args: Any, **kwargs: Any) -> None:
        try:
            await shut_down(*args, **kwargs)
        finally:
            forks.close_all()

    server.shutdown = shut_down_and_close


class SigtermHandler:
    def __init__(self) -> None:
        self._retries = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Deliver the counts, for two seconds for each client at most, then end as if there had been no handler, so
        that the parent process sees the signal. A second SIGTERM ends the process at once.

        If the interrupted code holds the lock of a client, that client's thread could deliver nothing: let the code go
        on, and try again.
        """
        if forks.lock_is_held() and self._retries < MAX_RETRIES:
            self._retries += 1
            send_again(number)
            return
        signal.signal(number, signal.SIG_DFL)
        try:
            forks.close_all()
        finally:
            end(number)


def send_again(number: int) -> None:
    """To this process, in a moment."""
    try:
        timer = Timer(RETRY_S, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()
    except RuntimeError:  # no thread can be started
        end(number)


def end(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # process 1 of a container: the system sends it no signal that it does not handle
