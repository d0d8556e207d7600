"""A storage and two strategies for `limits`, slowapi and flask-limiter. Importing the module registers them.

The rate limit `100/minute` is the budget `limits/100-per-minute/<identifiers>`. An operator makes the rule for all of
them: `countless budget create 'limits/100-per-minute/*' --limit 100 --per minute`.
"""

import logging
from functools import cache
from hashlib import sha256
from time import time
from typing import Any, NoReturn
from urllib.parse import quote

from limits import RateLimitItem
from limits.errors import ConfigurationError
from limits.storage import Storage, StorageTypes
from limits.strategies import STRATEGIES, RateLimiter
from limits.util import WindowStats

from countless.client.client import connect
from countless.client.expected_rules import command_for
from countless.core.budget.rule import BudgetRule
from countless.core.calendar import PERIODS
from countless.core.parameters import require_duration
from countless.errors import AboveLimit, CountlessError, LimitExceeded, UnknownBudget

log = logging.getLogger("countless")
WAIT_S = 0.2  # slowapi asks from the event loop, which must not stand still for long
MAX_KEY_CHARS = 200
DEFAULT_NAMESPACE = "LIMITER"  # of the library's rate limits


class BudgetStorage(Storage):
    """A client of the coordinator at `countless://host:port`; `countless://` is the one of the environment.

    Options: `wait`, seconds to wait for the coordinator; `token`, `site` and `state_dir` of `connect`.
    """

    STORAGE_SCHEME = [f"countless{plus}" for plus in ("", "+http", "+https", "+nats", "+tls")]  # noqa: RUF012

    def __init__(self, uri: str, wrap_exceptions: bool = False, *, wait: float | str = WAIT_S, **options: str | None):
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        scheme, _, place = uri.partition("://")
        self.wait_s = require_duration("wait", wait, "0s", "1h")
        self.client = connect(f"{scheme.partition('+')[2] or 'http'}://{place}" if place else None, **options)

    @property
    def base_exceptions(self) -> type[Exception]:
        return CountlessError

    def check(self) -> bool:
        return self.client.connected

    def incr(self, *_: object, **__: object) -> NoReturn:
        raise ConfigurationError('countless:// needs strategy="countless" or strategy="countless-moving-window"')

    get = get_expiry = incr

    def clear(self, key: str = "") -> NoReturn:
        raise NotImplementedError("an operator resets budgets at the coordinator")

    reset = clear


class BudgetRateLimiter(RateLimiter):
    """Each rate limit and its identifiers are a budget. The coordinator's rule decides, if it differs from the item."""

    def __init__(self, storage: StorageTypes) -> None:
        if not isinstance(storage, BudgetStorage):
            raise ConfigurationError('strategy="countless" needs countless://host:port, and has no in-memory fallback')
        super().__init__(storage)
        self._client, self._wait_s = storage.client, storage.wait_s

    @staticmethod
    def rule_of(item: RateLimitItem) -> tuple[str, BudgetRule]:
        """Return the rule that an operator makes for a rate limit, and how the names of its budgets begin."""
        period = item.GRANULARITY.name
        if item.multiples != 1 or period not in PERIODS:
            known = f"budgets have limits per {', '.join(PERIODS)}, and no multiples"
            raise ConfigurationError(f'rate limit {item!r}: {known}; strategy="countless-moving-window" has any')
        return f"limits/{item.amount}-per-{period}", BudgetRule(item.amount, per=period)

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Raises `Starved` or `Unreachable` without an answer, which `swallow_errors` of the callers catches."""
        return cost == 0 or self._reserve(item, identifiers, cost, used=cost)

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """True if a `hit` would succeed: the units are reserved, and returned at once."""
        return cost == 0 or self._reserve(item, identifiers, cost, used=0)

    def _reserve(self, item: RateLimitItem, identifiers: tuple[str, ...], cost: int, used: int) -> bool:
        prefix, rule = self.rule_of(item)
        budget, options = self._client.budget(f"{prefix}/{key_of(item, *identifiers)}"), _options(rule)
        try:
            budget.reserve(cost, self._wait_s).settle(used)
        except UnknownBudget as problem:
            command = command_for(f"{prefix}/*", options)
            _log_missing(item, command)
            raise ConfigurationError(f"{problem}; create the rule: {command}") from problem
        except (LimitExceeded, AboveLimit):
            return False
        finally:
            if (found := _options(budget.rule or rule)) != options:
                _log_difference(item, f"{prefix}/* has {found}")
        return True

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        """The time at which there will be more, if known, and the units left: at least 1 until a hit is refused."""
        budget = self._client.budget(f"{self.rule_of(item)[0]}/{key_of(item, *identifiers)}")
        return WindowStats(time() + (budget.retry_after() or 0.0), budget.left)


class RollingBudgetRateLimiter(BudgetRateLimiter):
    """The amount in every interval as long as the item's; `limits/100-in-60s/*` is `--limit 100 --rolling 60s`."""

    @staticmethod
    def rule_of(item: RateLimitItem) -> tuple[str, BudgetRule]:
        seconds = item.get_expiry()
        return f"limits/{item.amount}-in-{seconds}s", BudgetRule(item.amount, rolling=seconds)


def _options(rule: BudgetRule) -> str:
    """The limit, as `countless budget create` takes it."""
    return f"--limit {rule.limit} " + (f"--per {rule.per}" if rule.rolling is None else f"--rolling {rule.rolling:g}s")


@cache  # once for each
def _log_missing(item: RateLimitItem, command: str) -> None:
    log.warning("rate limit without a rule: rate_limit='%r'; create it: %s", item, command)


@cache
def _log_difference(item: RateLimitItem, rule: str) -> None:
    log.warning("rule differs from the rate limit, and decides: rate_limit='%r' rule='%s'", item, rule)


def key_of(item: RateLimitItem, *identifiers: str) -> str:
    """Return the last part of a budget's name: one part, whatever the identifiers contain.

    >>> from limits import parse
    >>> key_of(parse("100/minute"), "127.0.0.1", "/users")
    '127.0.0.1:%2Fusers'
    """
    parts = identifiers if item.namespace == DEFAULT_NAMESPACE else (item.namespace, *identifiers)
    key = ":".join(quote(str(part), safe="", errors="surrogatepass") for part in parts)
    return (key if len(key) <= MAX_KEY_CHARS else sha256(key.encode()).hexdigest()) or "(all)"  # which no identifier is


_OURS: dict[str, Any] = {"countless": BudgetRateLimiter, "countless-moving-window": RollingBudgetRateLimiter}
STRATEGIES.update(_OURS)
