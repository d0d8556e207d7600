"""A forked child, as C leaves it: a copy of its client, without the thread, behind a page that is wiped.

A file of counts is shared, as mapped memory is, and so is its lock. Iterators over numbers and units cannot be copied:
they are made again where they are, on the child's page.
"""

import os
from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from itertools import count, filterfalse, repeat
from operator import length_hint, setitem
from threading import Condition
from typing import TypeVar
from weakref import WeakValueDictionary

from countless.client.budgets.budget import BudgetPart
from countless.client.budgets.local_budget import NONE_ASIDE, LocalBudget
from countless.client.client import Client
from countless.client.durable.budget import DurableBudget
from countless.client.durable.counter import DurableCounter
from countless.client.fork_page import ForkPage
from countless.client.forks import ClientLock
from countless.client.local_counter import LocalCounter
from countless.client.local_windows import LocalCounterWindows
from countless.client.session.loop import ClientLoop
from countless.client.transport.base import Transport

AnyClient = TypeVar("AnyClient", bound=Client)


class WipedPage(ForkPage):
    """As a child finds it."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self._ones = memoryview(bytes(1))


def inherited(
    client: AnyClient, parts: dict[str, BudgetPart], transport: Transport, others: list[tuple[object, object]]
) -> tuple[AnyClient, dict[str, BudgetPart]]:
    """The client and its budgets in the child. `others`: what the parent has, and the child has in its place."""
    page, lock = WipedPage(), ClientLock()
    lock.page = page
    loop = ClientLoop(
        client._site_id,
        {},
        lock,
        transport,
        client._on_status,
        client._renew_incarnation,
        surroundings=client._surroundings,
    )
    pairs: list[tuple[object, object]] = [
        *others,
        (client._lock, lock),
        (client._changed, Condition(lock)),
        (client._loop, loop),
        (client._thread, client._thread),
        (client._surroundings.rng, client._surroundings.rng),
        (client._budgets, {}),  # it would share its values with the copy
        (client._members, {}),  # they belong to the sessions of the parent; the child makes its own
        (NONE_ASIDE, NONE_ASIDE),
    ]
    finished = [each._last[2] for each in client._windows.values() if isinstance(each, LocalCounterWindows)]
    counters = [each for each in (*client._local_counters.values(), *finished) if each is not None]
    pairs += [(counter.sequence, _numbers(counter, page)) for counter in counters]
    for part in parts.values():
        pairs += [(part._waiters, {}), (part._lingering, deque())]  # requests of the parent's threads
        for local in part._periods._periods.states.values():
            pairs += zip((local._aside, local.units), _units(local, page), strict=True)
    file = None if client._durable is None else client._durable._file._file
    pairs += [] if file is None else [(chunk, chunk) for chunk in file.chunks]
    memo = {id(old): new for old, new in pairs if old is not None}
    copied: AnyClient
    budgets: dict[str, BudgetPart]
    copied, budgets = deepcopy((client, parts), memo)
    copied._budgets = WeakValueDictionary(budgets)
    durable = copied._durable
    if durable is not None and durable._file._file._lock is not None:
        durable._file._file._lock = os.dup(durable._file._file._lock)
    return copied, budgets


def _numbers(counter: LocalCounter, page: ForkPage) -> Iterator[int]:
    if not isinstance(counter, DurableCounter):
        return page.endless(count(counter.count - counter._offset + 1))
    words, cell = counter._record.words, counter._record.at + 1
    return filterfalse(partial(setitem, words, cell), page.items(count(words[cell] + 1)))


def _units(local: LocalBudget, page: ForkPage) -> tuple[Iterator[object], Iterator[object]]:
    left = length_hint(local._aside)
    if not left:
        return NONE_ASIDE, NONE_ASIDE
    if not isinstance(local, DurableBudget) or local._record is None:
        units: Iterator[object] = repeat(True, left)
        return units, page.items(units)
    numbers = iter(range(local._numbered - left + 1, local._numbered + 1))
    return numbers, local._record.sequence(page.items(numbers))
