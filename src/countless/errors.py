"""Every exception Countless raises.

Two families, told apart by who has to act:

    CountlessError
    ├── InvalidParameter (ValueError)   you passed a value outside its range; nothing has changed
    │   └── UnknownName (LookupError)   ... a scheme, site or adversary that does not exist
    ├── ProtocolError                   the peer sent something the protocol forbids; it was ignored whole
    ├── PlanError                       no plan with a proof exists for what was asked
    ├── BudgetRefused                   a budget did not admit a reservation
    │   ├── Exhausted                   ... because not enough of it is left
    │   ├── Starved                     ... because the coordinator did not answer in time
    │   ├── Unreachable                 ... because there is no connection to the coordinator
    │   └── UnknownBudget               ... because the coordinator has no such budget
    ├── InvariantBroken                 a bug in Countless itself: please report it with the seed
    └── MissingExtra (ImportError)      an optional dependency is not installed; the message names the extra
"""

from collections.abc import Iterable
from typing import Any


class CountlessError(Exception):
    """Root of the tree."""


class InvalidParameter(CountlessError, ValueError):
    """A value outside its range. The message names the parameter, the value and the range."""

    def __init__(self, parameter: str, value: object, allowed: str) -> None:
        super().__init__(f"{parameter} = {value!r} is not allowed: {parameter} must be {allowed}")
        self.parameter = parameter
        self.value = value
        self.allowed = allowed


class UnknownName(InvalidParameter, LookupError):
    """A name that is not in its registry."""

    def __init__(self, parameter: str, value: object, known: Iterable[Any]) -> None:
        names = [str(name) for name in known]
        shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
        super().__init__(parameter, value, f"one of: {shown}" if names else "registered first (there are none)")


class ProtocolError(CountlessError):
    """The peer broke the protocol. The offending message changed nothing."""


class PlanError(CountlessError):
    """No proven plan exists for the request, or a finished plan failed its check."""


class BudgetRefused(CountlessError):
    """A budget did not admit a reservation."""


class Exhausted(BudgetRefused):
    """Not enough of the budget is left."""

    def __init__(self, budget: str, units: int) -> None:
        super().__init__(f"budget {budget!r} has not {units} units left")
        self.budget = budget
        self.units = units


class Starved(BudgetRefused):
    """The coordinator did not answer in time."""


class Unreachable(BudgetRefused):
    """There is no connection to the coordinator."""


class UnknownBudget(BudgetRefused):
    """The coordinator has no budget of this name, or not for this site."""

    def __init__(self, budget: str, reason: str) -> None:
        super().__init__(f"budget {budget!r} rejected by the coordinator: {reason}")
        self.budget = budget


class InvariantBroken(CountlessError):
    """Countless broke its own rules: a bug, not a usage error."""


class MissingExtra(CountlessError, ImportError):
    """An optional dependency is missing."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'countless[{extra}]'")
