"""Clients and `fork`: a child counts for itself, under a life of its own (SPEC section 2).

Around a fork every client's lock is held by the forking thread, so a child never finds a count half changed. What was
counted before belongs to the parent; in the child all meters start at nothing. `multiprocessing` ends its children
without `atexit`: they get a finaliser of their own.
"""

import atexit
import os
import sys
from threading import Lock
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """What a client does around a fork, and at the end."""

    def hold(self) -> None:
        """Take the lock."""

    def release(self) -> None:
        """Give it back."""

    def reborn_in_child(self) -> None:
        """Another process: another life. The lock is held."""

    def close(self, timeout: float = 5.0) -> bool:
        """Deliver and go."""


_clients: "WeakSet[Forkable]" = WeakSet()
_held: list[Forkable] = []
_one_fork = Lock()  # at a time: two threads may fork at once
AT_EXIT = 2.0  # seconds that a process may wait for the delivery of its last counts


def look_after(client: Forkable) -> None:
    """From now on, until it is closed."""
    _clients.add(client)


def forget(client: Forkable) -> None:
    """It is closed."""
    _clients.discard(client)


def close_all() -> None:
    """Deliver what can still be delivered."""
    for client in list(_clients):
        client.close(AT_EXIT)


def _before() -> None:
    _one_fork.acquire()
    _held[:] = list(_clients)
    for client in _held:
        client.hold()


def _in_parent() -> None:
    for client in reversed(_held):
        client.release()
    _held.clear()
    _one_fork.release()


def _in_child() -> None:
    for client in reversed(_held):
        client.reborn_in_child()
        client.release()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(client, _finalise)  # called once multiprocessing has cleared its finalisers
    _held.clear()
    _one_fork.release()


def _finalise(client: Forkable) -> None:
    from multiprocessing.util import Finalize

    Finalize(client, close_all, exitpriority=100)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
atexit.register(close_all)
