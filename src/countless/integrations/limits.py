"""A storage and two strategies for the `limits` library. Importing the module registers them.

    import countless.integrations.limits

    Limiter(key_func=..., storage_uri="countless://127.0.0.1:2686", strategy="countless")  # slowapi, flask-limiter

The rate limit `100/minute` is the budget `limits/100-per-minute/<identifiers>`. An operator makes the rule for all of
them at the coordinator: `countless budget create 'limits/100-per-minute/*' --limit 100 --per minute`.

The strategy `countless-moving-window` admits as many in every interval of the length, as `moving-window` of the library
does: `100/minute` is the budget `limits/100-in-60s/<identifiers>`, with the rule `--limit 100 --rolling 60s`.
"""

import atexit
import logging
from hashlib import sha256
from time import time
from typing import NamedTuple, NoReturn
from urllib.parse import quote

from limits import RateLimitItem
from limits.errors import ConfigurationError
from limits.storage import Storage, StorageTypes
from limits.strategies import STRATEGIES, RateLimiter
from limits.util import WindowStats

from countless.client.client import connect
from countless.client.http_requests import SparseLog
from countless.core.budget.rule import BudgetRule
from countless.core.calendar import PERIODS
from countless.errors import AboveLimit, CountlessError, InvalidParameter, LimitExceeded, UnknownBudget

log = logging.getLogger("countless")

WAIT_S = 0.2  # slowapi asks from the event loop, which must not stand still for long
CLOSE_S = 2.0
MAX_KEY_CHARS = 200
DEFAULT_NAMESPACE = "LIMITER"  # of the library's rate limits


class BudgetStorage(Storage):
    """A client of the coordinator at `countless://host:port`; the schemes after a `+` are those of `connect`.

    Options: `wait`, seconds to wait for the coordinator, and `token`, `site` and `state_dir` of `connect`. What is not
    given comes from the environment, `countless://` without a host from `COUNTLESS_URL`.
    """

    STORAGE_SCHEME = [  # noqa: RUF012 - the library declares it so
        "countless",
        "countless+http",
        "countless+https",
        "countless+nats",
        "countless+tls",
    ]

    def __init__(
        self,
        uri: str,
        wrap_exceptions: bool = False,
        *,
        wait: float | str = WAIT_S,
        token: str | None = None,
        site: str | None = None,
        state_dir: str | None = None,
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        scheme, _, place = uri.partition("://")
        transport = scheme.partition("+")[2] or "http"
        self.wait_s = _seconds(wait)
        self.client = connect(f"{transport}://{place}" if place else None, token, site, state_dir)
        atexit.register(self.client.close, CLOSE_S)

    @property
    def base_exceptions(self) -> type[Exception]:
        return CountlessError

    def check(self) -> bool:
        return self.client.connected

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        _needs_strategy()

    def get(self, key: str) -> int:
        _needs_strategy()

    def get_expiry(self, key: str) -> float:
        _needs_strategy()

    def reset(self) -> int | None:
        raise NotImplementedError("an operator resets budgets at the coordinator")

    def clear(self, key: str) -> None:
        raise NotImplementedError("an operator resets budgets at the coordinator")


def _seconds(wait: float | str) -> float:
    try:
        seconds = float(wait)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise InvalidParameter("wait", wait, "a number of seconds from 0")
    return seconds


def _needs_strategy() -> NoReturn:
    raise ConfigurationError(
        'the storage countless:// has strategies of its own: set strategy="countless" or "countless-moving-window"'
    )


class ExpectedRule(NamedTuple):
    """The rule that an operator should have made for a rate limit."""

    name: str
    limit: int
    option: str  # of `countless budget create`
    per: str | None = None
    rolling: float | None = None


class BudgetRateLimiter(RateLimiter):
    """Each rate limit and its identifiers are a budget. The coordinator's rule decides, if it differs from the item."""

    @staticmethod
    def expected_rule(item: RateLimitItem) -> ExpectedRule:
        period = item.GRANULARITY.name
        if item.multiples != 1 or period not in PERIODS:
            raise ConfigurationError(
                f"rate limit {item!r}: budgets have limits per {', '.join(PERIODS)}, and no multiples; "
                'strategy="countless-moving-window" has any'
            )
        return ExpectedRule(f"limits/{item.amount}-per-{period}", item.amount, f"--per {period}", per=period)

    def __init__(self, storage: StorageTypes) -> None:
        if not isinstance(storage, BudgetStorage):
            raise ConfigurationError(
                'strategy "countless" needs a storage countless://host:port. It has no in-memory fallback, which would '
                "give every process the whole limit"
            )
        super().__init__(storage)
        self._budgets = storage.client
        self._wait_s = storage.wait_s
        self._log = SparseLog()
        self._differing: set[str] = set()  # rules that differ from their rate limit, and are in the log

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Raises `Starved` or `Unreachable` without an answer, which `swallow_errors` of the callers catches."""
        return self._reserve(item, identifiers, cost, used=cost)

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """True if a `hit` would succeed: the units are reserved, and returned at once."""
        return self._reserve(item, identifiers, cost, used=0)

    def _reserve(self, item: RateLimitItem, identifiers: tuple[str, ...], cost: int, used: int) -> bool:
        if cost == 0:
            return True
        expected = self.expected_rule(item)
        budget = self._budgets.budget(budget_name(item, *identifiers, rule=expected))
        try:
            budget.reserve(cost, self._wait_s).settle(used)
        except UnknownBudget as problem:
            command = f"countless budget create '{expected.name}/*' --limit {expected.limit} {expected.option}"
            self._log.log(logging.WARNING, "rate limit without a rule: error=%s; create it: %s", problem, command)
            raise ConfigurationError(f"{problem}; create the rule: {command}") from problem
        except (LimitExceeded, AboveLimit):
            return False
        finally:
            self._compare(expected, item, budget.rule)
        return True

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        """The time at which there will be more, if known, and the units left: at least 1 until a hit is refused."""
        budget = self._budgets.budget(budget_name(item, *identifiers, rule=self.expected_rule(item)))
        return WindowStats(time() + (budget.retry_after() or 0.0), budget.left)

    def _compare(self, expected: ExpectedRule, item: RateLimitItem, rule: BudgetRule | None) -> None:
        if rule is None or expected.name in self._differing:
            return
        if (rule.limit, rule.per, rule.rolling) != (expected.limit, expected.per, expected.rolling):
            self._differing.add(expected.name)
            interval = f"per {rule.per}" if rule.rolling is None else f"in every {rule.rolling:g} s"
            rule_text = f"{expected.name}/* has {rule.limit} {interval}"
            log.warning("rule differs from the rate limit, and decides: rate_limit='%r' rule='%s'", item, rule_text)

    def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        self.storage.clear(budget_name(item, *identifiers, rule=self.expected_rule(item)))


class RollingBudgetRateLimiter(BudgetRateLimiter):
    """At most the amount in every interval as long as the item's: of any granularity, with multiples."""

    @staticmethod
    def expected_rule(item: RateLimitItem) -> ExpectedRule:
        seconds = item.get_expiry()
        name, option = f"limits/{item.amount}-in-{seconds}s", f"--rolling {seconds}s"
        return ExpectedRule(name, item.amount, option, rolling=float(seconds))


def budget_name(item: RateLimitItem, *identifiers: str, rule: ExpectedRule | None = None) -> str:
    """The budget of a rate limit: one name below the rule, whatever the identifiers contain.

    >>> from limits import parse
    >>> budget_name(parse("100/minute"), "127.0.0.1", "/users")
    'limits/100-per-minute/127.0.0.1:%2Fusers'
    """
    parts = identifiers if item.namespace == DEFAULT_NAMESPACE else (item.namespace, *identifiers)
    key = ":".join(quote(str(part), safe="", errors="surrogatepass") for part in parts)
    if len(key) > MAX_KEY_CHARS:
        key = sha256(key.encode()).hexdigest()
    return f"{(rule or BudgetRateLimiter.expected_rule(item)).name}/{key or '(all)'}"  # no identifier has parentheses


STRATEGIES["countless"] = BudgetRateLimiter  # type: ignore[assignment]  # declared for the library's own three
STRATEGIES["countless-moving-window"] = RollingBudgetRateLimiter  # type: ignore[assignment]
