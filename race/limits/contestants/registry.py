"""The contestants of the race for limits by name."""

from functools import partial

from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from race.contestants.base import Case
from race.contestants.redis import RedisServer
from race.limits.contestants.base import Contestant, NoServer
from race.limits.contestants.leases import LeaseFleet
from race.limits.contestants.library import LibraryFleet
from race.limits.contestants.local import ShareFleet
from race.limits.contestants.ours import BudgetFleet, coordinator
from race.limits.contestants.sync import SyncFleet

_REDIS = partial(RedisServer, Case(1, 1))
_APPEND_ONLY = partial(RedisServer, Case(1, 1), append_only=True)
_FIXED = partial(LibraryFleet, strategy=FixedWindowRateLimiter)
_MOVING = partial(LibraryFleet, strategy=MovingWindowRateLimiter)

CONTESTANTS: dict[str, Contestant] = {
    "fixed-window": Contestant("limits, fixed window", _REDIS, _FIXED),
    "fixed-window-aof": Contestant("limits, fixed window, AOF", _APPEND_ONLY, _FIXED),
    "moving-window": Contestant("limits, moving window", _REDIS, _MOVING),
    "leases": Contestant("block leases", _REDIS, LeaseFleet),
    "leases-aof": Contestant("block leases, AOF", _APPEND_ONLY, LeaseFleet),
    "sync-10ms": Contestant("sync every 10 ms", _REDIS, SyncFleet, 0.01),
    "sync-100ms": Contestant("sync every 100 ms", _REDIS, SyncFleet, 0.1),
    "sync-1s": Contestant("sync every 1 s", _REDIS, SyncFleet, 1.0),
    "shares": Contestant("L/k per site", NoServer, ShareFleet),
    "slack-1": Contestant("Countless, slack 1 %", coordinator, partial(BudgetFleet, slack=0.01)),
    "slack-0": Contestant("Countless, slack 0", coordinator, partial(BudgetFleet, slack=0.0)),
}
