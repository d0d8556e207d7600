"""Waiting for another process."""

from collections.abc import Callable
from time import monotonic, sleep

TIMEOUT_S = 60.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition is true; TimeoutError after a minute."""
    deadline = monotonic() + TIMEOUT_S
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"waited {TIMEOUT_S:.0f} seconds for {what}")
        sleep(0.005)
