"""Clients and `fork`: a child counts for itself, as an incarnation of its own.

The forking thread holds every client's lock, so a child never finds a count half changed. What was counted before the
fork belongs to the parent; in the child all counters start at zero. `multiprocessing` ends its children without running
`atexit`, so they get a finaliser of their own.
"""

import atexit
import os
import sys
from contextlib import suppress
from threading import Lock
from typing import Protocol
from weakref import WeakSet

from countless.errors import CounterRefused

AT_EXIT_TIMEOUT_S = 2.0  # how long a process may wait at its end for the delivery of its final counts


class Forkable(Protocol):
    def _before_fork(self) -> None: ...

    def _after_fork_parent(self) -> None: ...

    def _after_fork_child(self) -> None: ...

    def _holds_lock(self) -> bool:
        """Whether the calling thread has the client's lock."""

    def close(self, timeout: float = 5.0) -> bool: ...


_clients: "WeakSet[Forkable]" = WeakSet()
_locked: list[Forkable] = []
_fork_lock = Lock()  # two threads may fork at the same time


def register(client: Forkable) -> None:
    """Take care of this client around forks and at the end of the process, until `unregister`."""
    _clients.add(client)


def unregister(client: Forkable) -> None:
    _clients.discard(client)


def lock_is_held() -> bool:
    """Whether the calling thread has the lock of a client."""
    return any(client._holds_lock() for client in list(_clients))


def close_all() -> None:
    for client in list(_clients):
        with suppress(CounterRefused):  # it is in the log, and the process ends
            client.close(AT_EXIT_TIMEOUT_S)


def _before() -> None:
    _fork_lock.acquire()
    _locked[:] = list(_clients)
    for client in _locked:
        client._before_fork()


def _in_parent() -> None:
    for client in reversed(_locked):
        client._after_fork_parent()
    _locked.clear()
    _fork_lock.release()


def _in_child() -> None:
    for client in reversed(_locked):
        client._after_fork_child()
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(client, _finalise)  # called once multiprocessing has cleared its finalisers
    _locked.clear()
    _fork_lock.release()


def _finalise(client: Forkable) -> None:
    from multiprocessing.util import Finalize

    Finalize(client, close_all, exitpriority=100)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
atexit.register(close_all)
