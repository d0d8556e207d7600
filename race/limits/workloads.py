"""Requests under a limit: at sites, at virtual seconds, drawn from a seed.

A request takes units at once, or holds them for a while and then uses some of them, as a proxy of a language model
does: it reserves the tokens that a reply may have, and learns from the reply how many it had.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

SECONDS = 5.0
OFFERED = 1.5  # units offered, in limits
OVERLOAD = 10
HOT_SHARE = 0.9
MOVES = 10  # of the hot spot
AWAY = (2.5, 3.0)

HELD = (10, 40)  # units of a hold: thousands of tokens
USED = (0.1, 0.6)  # of them
HELD_FOR = (0.1, 1.0)
_MEAN_USED = sum(HELD) / 2 * sum(USED) / 2


class Request(NamedTuple):
    """A request for units. One with `until` holds them until that time, and then uses `used` of them."""

    time: float
    number: int
    site: int
    units: int = 1
    used: int = 1
    until: float | None = None


class Workload(NamedTuple):
    name: str
    sites: int
    limit: int
    requests: list[Request]
    seconds: float = SECONDS
    away: tuple[float, float] | None = None  # the server is killed, and started again
    real_time: bool = False  # by the real clock, where that matters

    @property
    def end(self) -> float:
        """When the last hold has ended."""
        return max(self.seconds, *(request.until or 0.0 for request in self.requests))


SiteAt = Callable[[float], int]


def steady(sites: int, limit: int, seed: int) -> Workload:
    """The same rate at every site and at every time."""
    rng = Random(seed)  # noqa: S311
    return Workload("steady", sites, limit, _takes(rng, OFFERED * limit, _any_site(rng, sites)))


def hot(sites: int, limit: int, seed: int) -> Workload:
    """Nine of ten requests come to one site."""
    rng = Random(seed)  # noqa: S311
    return Workload("hot", sites, limit, _takes(rng, OFFERED * limit, _hot_site(rng, sites, lambda _: 0)))


def moving(sites: int, limit: int, seed: int) -> Workload:
    """Nine of ten requests come to one site, which is another one every half second."""
    rng = Random(seed)  # noqa: S311
    where = _hot_site(rng, sites, lambda now: int(now * MOVES / SECONDS) % sites)
    return Workload("moving", sites, limit, _takes(rng, OFFERED * limit, where))


def overload(sites: int, limit: int, seed: int) -> Workload:
    """Ten times the limit is offered."""
    rng = Random(seed)  # noqa: S311
    return Workload("overload", sites, limit, _takes(rng, OVERLOAD * limit, _any_site(rng, sites)))


def killed(sites: int, limit: int, seed: int) -> Workload:
    """Steady; half-way the server is killed, and it is away for half a second."""
    return steady(sites, limit, seed)._replace(name="killed", away=AWAY)


def holds(sites: int, limit: int, seed: int) -> Workload:
    """Units are reserved, held for a while, and used in part."""
    rng = Random(seed)  # noqa: S311
    requests = []
    for number, time in enumerate(_times(rng, OFFERED * limit / _MEAN_USED)):
        units = min(rng.randint(*HELD), limit)
        used = round(units * rng.uniform(*USED))
        requests.append(Request(time, number, rng.randrange(sites), units, used, time + rng.uniform(*HELD_FOR)))
    return Workload("holds", sites, limit, requests, real_time=True)


WORKLOADS: dict[str, Callable[[int, int, int], Workload]] = {
    "steady": steady,
    "hot": hot,
    "moving": moving,
    "overload": overload,
    "killed": killed,
    "holds": holds,
}


def _takes(rng: Random, number: float, site_at: SiteAt) -> list[Request]:
    return [Request(time, order, site_at(time)) for order, time in enumerate(_times(rng, number))]


def _times(rng: Random, number: float) -> Iterator[float]:
    yield from sorted(rng.uniform(0, SECONDS) for _ in range(int(number)))


def _any_site(rng: Random, sites: int) -> SiteAt:
    return lambda _: rng.randrange(sites)


def _hot_site(rng: Random, sites: int, hot_at: SiteAt) -> SiteAt:
    return lambda now: hot_at(now) if rng.random() < HOT_SHARE else rng.randrange(sites)
