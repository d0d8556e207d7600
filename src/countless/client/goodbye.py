"""SIGTERM: a program that has no handler of its own says goodbye before it ends.

Python runs no `atexit` functions when a signal ends the process, so without this the coordinator would wait for a
process that is gone. We install a handler only where the system's default action would end the process, and never
replace one. A program that installs its own later replaces ours; it should exit normally, or call `Client.close`.
"""

import os
import signal
from threading import Timer, current_thread, main_thread
from types import FrameType

from countless.client import forks

RETRY_S = 0.002
MAX_RETRIES = 500  # a call of ours holds its lock for some microseconds, so one is nearly always enough


def install() -> bool:
    """True if our handler is in place now. Only the main thread can install one."""
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, SigtermHandler())
    return True


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
