"""One change of an object at a time, even if a signal handler or a finaliser comes in between.

The owner's lock keeps other threads out, but not a handler in the thread that holds it. Such a handler cannot wait for
the call that it has interrupted: what it wants is done after that call, or refused.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Reentrant:
    """Everything is called with the owner's lock.

    >>> changes = Reentrant()
    >>> def change(n: int) -> str:
    ...     changes.defer(lambda: print("deferred"))
    ...     return f"changed by {n}"
    >>> changes.run(change, 5)
    deferred
    'changed by 5'
    """

    __slots__ = ("busy", "deferred")

    def __init__(self) -> None:
        self.busy = False  # a change is under way
        self.deferred: deque[Callable[[], object]] = deque()

    def run(self, change: Callable[[*Ts], T], *args: *Ts) -> T:
        """Make a change, which may run others as parts of it; then call what was deferred meanwhile."""
        if self.busy:
            return change(*args)
        self.busy = True
        try:
            return change(*args)
        finally:
            self.busy = False  # inline: an exception of a handler can come as soon as something is called
            if self.deferred:
                self.call_deferred()

    def defer(self, call: Callable[[], object]) -> None:
        """Call this as soon as no change is under way."""
        self.deferred.append(call)
        if not self.busy:
            self.call_deferred()

    def call_deferred(self) -> None:
        while True:
            try:
                call = self.deferred.popleft()
            except IndexError:
                return
            call()
