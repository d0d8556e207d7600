"""Games against a budget: traffic that spends it, and adversaries that make it costly or leave it unused.

A budget has no secrets, so an adversary sees everything: the room of every site, what is free, the share of a round.

| name            | kind      | idea                                                                                  |
|-----------------|-----------|---------------------------------------------------------------------------------------|
| `steady`        | traffic   | one site after the other                                                              |
| `uniform`       | traffic   | a random site for each request                                                        |
| `zipf`          | traffic   | site i with weight 1/(i+1)                                                            |
| `hot`           | traffic   | one site has all requests                                                             |
| `moving`        | traffic   | one site at a time, each twice                                                        |
| `full-rooms`    | adversary | most messages: every other site has a full share when a recall begins                 |
| `stranded`      | adversary | most units left: the same, and the last rooms are as large as a refusal permits       |
| `random-bursts` | adversary | the one of the lower bound: a random site gets a little more than it can admit unheard |
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, count
from typing import NamedTuple

from countless.errors import UnknownName
from countless.inprocess.budget import Budget
from countless.planning.budget import least_messages, most_messages
from countless.randomness import SeededRandom


class BudgetView:
    """The adversary's view: everything."""

    def __init__(self, budget: Budget, slack: float) -> None:
        self.budget = budget
        self.sites = [budget.site(name) for name in budget.sites]
        self.slack = slack

    @property
    def unspent(self) -> int:
        return self.budget.limit - self.budget.spent

    @property
    def free(self) -> int:
        """The units that the coordinator may grant without a recall."""
        return self.budget.limit - self.budget.usage.upper


Move = tuple[int, int]  # a site, and how many requests of one unit it gets
Moves = Callable[[BudgetView, SeededRandom], Iterator[Move]]


def steady(view: BudgetView, rng: SeededRandom) -> Iterator[Move]:
    while True:
        for site in range(len(view.sites)):
            yield site, 1


def uniform(view: BudgetView, rng: SeededRandom) -> Iterator[Move]:
    while True:
        yield rng.randbelow(len(view.sites)), 1


def zipf(view: BudgetView, rng: SeededRandom) -> Iterator[Move]:
    weights = list(accumulate(1 / (site + 1) for site in range(len(view.sites))))
    while True:
        yield min(bisect_right(weights, rng.random() * weights[-1]), len(view.sites) - 1), 1


def hot(view: BudgetView, rng: SeededRandom) -> Iterator[Move]:
    while True:
        yield 0, view.sites[0].room + 1


def moving(view: BudgetView, rng: SeededRandom) -> Iterator[Move]:
    for number in count():
        yield number % len(view.sites), 1 + view.budget.limit // (2 * len(view.sites))


def full_rooms(view: BudgetView, rng: SeededRandom) -> Iterator[Move]:
    """Feed one site until the others, a share each, use up what is free; then one request for each of them."""
    others = range(1, len(view.sites))
    while True:
        share = max(1, view.sites[0].room + 1)
        while view.free > share * len(others):
            yield 0, view.sites[0].room + 1
            share = max(1, view.sites[0].room + 1)
        for site in others:
            if view.sites[site].room == 0:
                yield site, 1
        yield 0, view.sites[0].room + 1


def stranded(view: BudgetView, rng: SeededRandom) -> Iterator[Move]:
    """As `full_rooms`; before a recall, spend from the rooms until what is left leads to the most at a refusal."""
    target = max(1.0, view.slack * view.budget.limit)
    for site, requests in full_rooms(view, rng):
        if site == 0 and view.free == 0 and requests > view.sites[0].room:
            yield 0, view.sites[0].room
            level = target
            while level / 0.28 < view.unspent:
                level /= 0.28
            for other in range(1, len(view.sites)):
                surplus = view.unspent - int(level)
                if surplus <= 0 or level == target:
                    break
                yield other, min(surplus, view.sites[other].room)
            yield 0, 1
        else:
            yield site, requests


def random_bursts(view: BudgetView, rng: SeededRandom) -> Iterator[Move]:
    while True:
        yield rng.randbelow(len(view.sites)), 2 * view.unspent // len(view.sites) + 1


TRAFFIC: dict[str, Moves] = {"steady": steady, "uniform": uniform, "zipf": zipf, "hot": hot, "moving": moving}
ADVERSARIES: dict[str, Moves] = {"full-rooms": full_rooms, "stranded": stranded, "random-bursts": random_bursts}


class BudgetGame(NamedTuple):
    """One game: the messages until the first refusal, and until every site was refused."""

    first_refusal: int
    messages: int
    holders: int
    left: int  # units at the first refusal
    most_messages: float
    least_messages: float


def play(name: str, sites: int, limit: int, slack: float, seed: int = 1, *, known: bool = False) -> BudgetGame:
    """Play until a request is refused; then each site that took part spends what it has, until it is refused.

    `known`: the coordinator is told how many sites there are. They must all ask before the first recall.
    """
    moves = (TRAFFIC | ADVERSARIES).get(name)
    if moves is None:
        raise UnknownName("name", name, TRAFFIC | ADVERSARIES)
    budget = Budget(limit, sites, slack, expected_holders=sites if known else 1)
    view = BudgetView(budget, slack)
    asked = set()
    for site, requests in moves(view, SeededRandom(seed)):
        asked.add(site)
        if not _spend(view, site, requests):
            break
    first_refusal, left = budget.messages.total, limit - budget.spent
    for site in asked:
        _spend(view, site, view.sites[site].room + 1)
    most = most_messages(len(asked), limit, slack, known=known)
    return BudgetGame(first_refusal, budget.messages.total, len(asked), left, most, least_messages(sites, limit, slack))


def _spend(view: BudgetView, site: int, requests: int) -> bool:
    """So many requests of one unit at a site; whether all were admitted. Those that fit its room are taken at once."""
    spender = view.sites[site]
    while requests:
        units = max(1, min(requests, spender.room))
        if not spender.take(units):
            return False
        requests -= units
    return True
