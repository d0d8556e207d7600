"""Every exception that Countless raises:

CountlessError
├── InvalidParameter (ValueError)   a value is outside its range; nothing has changed
│   ├── UnknownName (LookupError)   ... a scheme, site or adversary that does not exist
│   └── AboveLimit                  ... a request for more units than the limit of the budget
├── ProtocolError                   the peer violated the protocol; its message was ignored
├── CounterRefused                  the coordinator does not count a counter of this program
├── NoWindows                       a counter without windows was asked for one
├── ServiceError                    reading failed: no coordinator answered, or it refused the request
├── PlanError                       no plan with a proof exists for the request, or its check failed
├── BudgetRefused                   a budget did not admit a reservation
│   ├── LimitExceeded               ... because not enough of it is left
│   ├── Starved                     ... because the coordinator did not answer in time
│   ├── Unreachable                 ... because there is no connection to the coordinator
│   └── UnknownBudget               ... because the coordinator has no such budget
├── HoldExpired                     a hold was settled too late: all its units count as spent
├── InvariantBroken                 a bug in Countless: please report it with the seed
└── MissingExtra (ImportError)      an optional dependency is missing; the message names the extra
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import ceil
from typing import Any


class CountlessError(Exception):
    """Base class of all exceptions of Countless."""

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process may raise any of them: by default it would be made again from its message alone
        return _made_again, (type(self), *self.args), self.__dict__


def _made_again(kind: type[CountlessError], *args: object) -> CountlessError:
    error = kind.__new__(kind, *args)
    super(CountlessError, error).__init__(*args)
    return error


MAX_SHOWN = 600  # characters of a value in a message; a name has up to 500


class InvalidParameter(CountlessError, ValueError):
    """A value outside its range. The message names the parameter, the value and the range.

    Args:
        message: The whole message, for a value that is wrong because of something else.
    """

    def __init__(self, parameter: str, value: object, allowed: str = "", *, message: str = "") -> None:
        shown = repr(value)
        if len(shown) > MAX_SHOWN:
            shown = f"{shown[: MAX_SHOWN // 4]}... ({len(shown):,} characters)"
        super().__init__(message or f"{parameter} = {shown} is not allowed: {parameter} must be {allowed}")
        self.parameter = parameter
        self.value = value
        self.allowed = allowed


MAX_COMPARED = 500  # names: one comparison takes up to 0.1 ms, and a coordinator may have 100,000 counters


class UnknownName(InvalidParameter, LookupError):
    """A name that is not in its registry. `hint`: the name that may have been meant, such as " (did you mean 'a'?)"."""

    def __init__(self, parameter: str, value: object, known: Iterable[Any]) -> None:
        names = [str(name) for name in known]
        shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
        similar = get_close_matches(str(value), names[:MAX_COMPARED], n=1)
        self.hint = f" (did you mean {similar[0]!r}?)" if similar else ""
        shown += self.hint
        super().__init__(parameter, value, f"one of: {shown}" if names else "registered first (there are none)")


class AboveLimit(InvalidParameter):
    """A request for more units than the limit of its budget: no waiting helps."""

    def __init__(self, budget: str, n: int, limit: int) -> None:
        super().__init__("n", n, f"an integer from 1 to {limit}, the limit of budget {budget!r}")


class ProtocolError(CountlessError):
    """The peer violated the protocol. Its message changed nothing."""


class LimitReached(ProtocolError):
    """The peer has used up what it may have of a limit. The text has nothing that the peer chose."""


class CounterRefused(CountlessError):
    """The coordinator does not count these counters, or windows of them. `reasons`: why, by their names."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        (name, reason), *others = reasons.items()
        more = f" (and {len(others)} more counters)" if others else ""
        super().__init__(f"counter {name!r} is refused by the coordinator: {reason}{more}")
        self.reasons = dict(reasons)


class NoWindows(CountlessError):
    """A counter without windows was asked for one. A series gets them with its counter, `whole`."""

    def __init__(self, counter: str, whole: str | None = None, has_rolling: bool = True) -> None:
        from shlex import quote  # it needs `os`, and the core imports this file

        command = f"countless counter set {quote(whole or counter)} --per hour"
        rolling = " (the last minutes are known without windows: rolling 15m)" if has_rolling else ""
        super().__init__(f"counter {counter!r} has no windows: `{command}` starts some{rolling}")


class ServiceError(CountlessError):
    """A request to the coordinator failed, or was refused. `status`: of its answer; None if there was none."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_refusal(self) -> bool:
        """The same request would fail again."""
        return self.status is not None and self.status < 500


class PlanError(CountlessError):
    """No plan with a proof exists for the request, or a finished plan failed its check."""


class BudgetRefused(CountlessError):
    """A budget did not admit a reservation."""


class LimitExceeded(BudgetRefused):
    """Not enough of the budget is left. `retry_after`: seconds until more is available, if that is known."""

    def __init__(self, budget: str, units: int, retry_after: float | None = None) -> None:
        super().__init__(budget, units, retry_after)  # Celery makes errors of tasks again from their arguments
        self.budget = budget
        self.units = units
        self.retry_after = retry_after

    def __str__(self) -> str:
        left = "no units" if self.units == 1 else f"fewer than {self.units} units"
        retry = "" if self.retry_after is None else f", retry after {ceil(self.retry_after)} s"
        return f"budget {self.budget!r} has {left} left{retry}"


class Starved(BudgetRefused):
    """The coordinator did not answer in time."""


class Unreachable(BudgetRefused):
    """There is no connection to the coordinator."""


class UnknownBudget(BudgetRefused):
    """The coordinator has no budget of this name, or not for this site."""

    def __init__(self, budget: str, reason: str) -> None:
        super().__init__(budget, reason)
        self.budget = budget

    def __str__(self) -> str:
        _, reason = self.args
        return f"budget {self.budget!r} rejected by the coordinator: {reason}"


class HoldExpired(CountlessError):
    """A hold was settled after it had expired. Nothing has changed: all its units count as spent, or as returned if
    the budget limits what runs at the same time.
    """

    def __init__(self, budget: str, units: int) -> None:
        super().__init__(
            f"the hold of {units} units of budget {budget!r} has expired: settle sooner, or give expires_in"
        )
        self.budget = budget
        self.units = units


class InvariantBroken(CountlessError):
    """A bug in Countless, not in how it was used."""


class MissingExtra(CountlessError, ImportError):
    """An optional dependency is missing."""

    def __init__(self, package: str, extra: str, distribution: str = "countless") -> None:
        super().__init__(f"{package} is not installed; run: pip install '{distribution}[{extra}]'")
