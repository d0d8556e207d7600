"""Clients and forks: a child counts for itself, as an incarnation of its own.

What was counted before the fork belongs to the parent; in the child all counters start at zero. Three kinds of fork:

| hooks that run                          | when the clients of the child become new incarnations                     |
|-----------------------------------------|---------------------------------------------------------------------------|
| both (`os.fork`, `multiprocessing`)     | at the fork; the forking thread holds every lock, so no count is half done |
| the child's (uWSGI: py-call-osafterfork)| at the fork                                                               |
| none (uWSGI, any fork in C)             | when a thread of the child first takes the lock of a client               |

In the last two a thread that does not exist in the child may hold a lock, or may have been in the middle of a change:
the child makes its locks new, and all state that a change may leave half done. Until then no thread can count or spend
in the child without a lock (`fork_page.py`).

`multiprocessing` and Celery's pool end their children without running `atexit`, so they close clients in another way.
"""

import atexit
import logging
import os
import sys
from _thread import RLock
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock, get_ident
from typing import Protocol
from weakref import WeakSet

from countless.client.fork_page import ForkPage
from countless.errors import CounterRefused

log = logging.getLogger("countless")

AT_EXIT_TIMEOUT_S = 2.0  # how long a process may wait at its end for the delivery of its final counts


class ClientLock(RLock):  # type: ignore[misc]  # the class may have subclasses
    """The lock of a client. In a child that does not know of its fork yet, taking it repairs the child first."""

    def __init__(self) -> None:
        self.page = present_page()

    def __enter__(self) -> bool:  # type: ignore[override]
        if self.page.inherited:
            _repair(self)
        return _enter(self)

    def take_over(self) -> None:
        """Take it in a child, where a thread may hold it that does not exist."""
        self._at_fork_reinit()  # type: ignore[attr-defined]  # of every lock: what Python's own modules use
        self.acquire()

    @property
    def held(self) -> bool:
        """True if the calling thread has it."""
        return bool(self._is_owned())  # type: ignore[attr-defined]  # of every RLock, and used by Condition


_enter = RLock.__enter__


class Forkable(Protocol):
    @property
    def _lock(self) -> ClientLock: ...

    def _after_fork(self) -> None:
        """In the child, with the lock held: continue as a new incarnation."""

    def close(self, timeout: float = 5.0) -> bool: ...


_page = ForkPage()
_clients: "WeakSet[Forkable]" = WeakSet()
_open: "WeakSet[Forkable]" = WeakSet()  # to be closed at the end of the process
_locked: list[Forkable] = []
_forking: int | None = None  # the thread that holds these locks
_fork_lock = Lock()  # two threads may fork at the same time
_finalised = 0  # the process that has a finaliser of multiprocessing
_repairs: dict[int, RLock] = {}  # by pid: a child must not wait for the lock of its parent


def present_page() -> ForkPage:
    """The page of this process."""
    if _page.inherited:
        _repair(None)
    return _page


def register(client: Forkable, *, close_at_exit: bool) -> None:
    """Take care of this client around forks and, until `unregister`, at the end of the process."""
    _clients.add(client)
    if close_at_exit:
        _open.add(client)
        if (process := sys.modules.get("multiprocessing.process")) and process.parent_process() is not None:
            _finalise(client)
        _close_in_celery()


def unregister(client: Forkable) -> None:
    _open.discard(client)


def forget(client: Forkable) -> None:
    """Forget a client whose simulated process has ended."""
    _open.discard(client)
    _clients.discard(client)


def lock_is_held() -> bool:
    """True if the calling thread has the lock of a client."""
    return any(client._lock.held for client in list(_clients))


def close_all() -> None:
    for client in list(_open):
        with suppress(CounterRefused):  # it is in the log, and the process ends
            client.close(AT_EXIT_TIMEOUT_S)


def warn_if_threads_do_not_run() -> None:
    """For a process that has started a thread. uWSGI keeps the GIL while it waits for a request, unless told."""
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is not None and not getattr(uwsgi, "has_threads", True):
        log.warning("uWSGI threads off, counts delivered only during requests: set enable-threads")


def in_uwsgi_master() -> bool:
    """A worker that uWSGI forks while another thread has the GIL waits for that thread, which it does not have."""
    uwsgi = sys.modules.get("uwsgi")
    return uwsgi is not None and uwsgi.masterpid() == os.getpid()


def _before() -> None:
    global _forking
    present_page()  # this may be a child that does not know it yet
    _fork_lock.acquire()
    _forking = get_ident()
    _locked[:] = list(_clients)
    for client in _locked:
        client._lock.acquire()


def _in_parent() -> None:
    global _forking
    for client in reversed(_locked):
        client._lock.release()
    _locked.clear()
    _forking = None
    _fork_lock.release()


def _in_child() -> None:
    if _forking == get_ident():
        _renew_process()
        _renew_clients(reversed(_locked))
        _locked.clear()
    else:  # only this hook runs
        _repair(None)


def _repair(lock: ClientLock | None) -> None:
    """In a child, if it does not know of its fork yet."""
    with _repairs.setdefault(os.getpid(), RLock()):
        clients = [client for client in list(_clients) if _page.inherited or client._lock is lock]
        clients = [client for client in clients if client._lock.page.inherited]
        for client in clients:
            client._lock.take_over()
        if _page.inherited:
            _renew_process()
        _renew_clients(clients)
        if lock is not None and lock.page.inherited:  # its client is gone, and only a counter of it is left
            lock.take_over()
            lock.page = _page
            lock.release()


def _renew_process() -> None:
    global _page, _fork_lock, _forking
    _page, _fork_lock, _forking = ForkPage(), Lock(), None


def _renew_clients(locked: Iterable[Forkable]) -> None:
    """With their locks held, which are released."""
    util = sys.modules.get("multiprocessing.util")
    failures: list[Exception] = []
    for client in locked:
        client._lock.page = _page
        try:
            client._after_fork()
        except Exception as failure:  # the locks of the others must not stay held
            failures.append(failure)
        finally:
            client._lock.release()
        if util is not None:
            util.register_after_fork(client, _finalise)  # called once multiprocessing has cleared its finalisers
    _close_in_celery()
    if failures:
        raise failures[0]


def _finalise(_: object) -> None:
    global _finalised
    if _finalised != os.getpid():
        from multiprocessing.util import Finalize

        _finalised = os.getpid()
        Finalize(None, close_all, exitpriority=100)


def _close_in_celery() -> None:
    signals = sys.modules.get("celery.signals")
    if signals is not None:
        signals.worker_process_shutdown.connect(_celery_worker_ends, dispatch_uid=__name__)


def _celery_worker_ends(**_: object) -> None:
    close_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
atexit.register(close_all)
