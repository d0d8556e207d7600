"""Waiting for another process."""

from collections.abc import Callable
from time import monotonic, sleep

TIMEOUT_S = 60.0


def until(condition: Callable[[], bool], what: str, timeout: float = TIMEOUT_S) -> None:
    """Poll until the condition is true; TimeoutError after `timeout` seconds."""
    deadline = monotonic() + timeout
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} seconds for {what}")
        sleep(0.005)
