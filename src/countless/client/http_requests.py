"""Notes about requests, which come from outside, thousands a second: log lines and labels."""

import logging
from time import monotonic

LOG_EVERY_S = 1.0

log = logging.getLogger("countless")


class SparseLog:
    """Writes at most one line of each level in `LOG_EVERY_S`, with the number of lines left out before it."""

    def __init__(self) -> None:
        self._next = {logging.INFO: 0.0, logging.WARNING: 0.0}
        self._left_out = {logging.INFO: 0, logging.WARNING: 0}

    def log(self, level: int, message: str, *args: object) -> None:
        if monotonic() < self._next[level]:
            self._left_out[level] += 1
            return
        log.log(level, message + " (%d others not logged)", *args, self._left_out[level])
        self._next[level], self._left_out[level] = monotonic() + LOG_EVERY_S, 0


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"})


def method_label(method: str) -> str:
    """Methods come from outside, and their number must have a bound."""
    return method if method in _METHODS else "other"
