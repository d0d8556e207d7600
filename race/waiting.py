"""Waiting for another process: ask again and again, and give up some day."""

from collections.abc import Callable
from time import monotonic, sleep

PATIENCE = 60.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Return once the condition is true."""
    deadline = monotonic() + PATIENCE
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE:.0f} seconds for {what}")
        sleep(0.005)
