"""Countless: a global count over many machines, with a bound on its error.

>>> import countless
>>> tracker = countless.Tracker(sites=3, alpha=0.01)
>>> tracker.site(1).add(5)
>>> tracker.answer.estimate
5
"""

import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Answer", "Budget", "Client", "CountlessError", "Distribution", "Family", "InvalidParameter", "Reader"]
__all__ += ["LimitExceeded", "Tracker", "__version__", "connect", "default_client", "limited"]
__all__ += ["ClientBudget", "ClientDistribution", "Counter", "Decision", "Hold", "Slot", "Watch"]  # for annotations
__all__ += ["QuantileValue", "Quantiles", "Rate", "RollingCount", "SeriesCount", "TopCounts", "TotalCount"]
__all__ += ["WindowCount"]

if TYPE_CHECKING:
    from countless.client.answers import (
        Quantiles,
        QuantileValue,
        Rate,
        RollingCount,
        SeriesCount,
        TopCounts,
        TotalCount,
        WindowCount,
    )
    from countless.client.budgets.client_budget import ClientBudget
    from countless.client.client import Client, connect
    from countless.client.counter import Counter
    from countless.client.default import default_client
    from countless.client.families.local_family import ClientDistribution
    from countless.client.reader import Reader
    from countless.client.watch import Watch
    from countless.core.answer import Answer
    from countless.core.budget.decision import Decision
    from countless.core.budget.hold import Hold, Slot
    from countless.errors import CountlessError, InvalidParameter, LimitExceeded
    from countless.inprocess.budget import Budget
    from countless.inprocess.distribution import Distribution
    from countless.inprocess.family import Family
    from countless.inprocess.tracker import Tracker
    from countless.limiting.limited import limited

_HOMES = {
    "Answer": "countless.core.answer",
    "Budget": "countless.inprocess.budget",
    "Client": "countless.client.client",
    "ClientBudget": "countless.client.budgets.client_budget",
    "ClientDistribution": "countless.client.families.local_family",
    "Counter": "countless.client.counter",
    "CountlessError": "countless.errors",
    "Decision": "countless.core.budget.decision",
    "Distribution": "countless.inprocess.distribution",
    "Family": "countless.inprocess.family",
    "Hold": "countless.core.budget.hold",
    "InvalidParameter": "countless.errors",
    "LimitExceeded": "countless.errors",
    "QuantileValue": "countless.client.answers",
    "Quantiles": "countless.client.answers",
    "Rate": "countless.client.answers",
    "Reader": "countless.client.reader",
    "RollingCount": "countless.client.answers",
    "SeriesCount": "countless.client.answers",
    "Slot": "countless.core.budget.hold",
    "TopCounts": "countless.client.answers",
    "TotalCount": "countless.client.answers",
    "Tracker": "countless.inprocess.tracker",
    "Watch": "countless.client.watch",
    "WindowCount": "countless.client.answers",
    "connect": "countless.client.client",
    "default_client": "countless.client.default",
    "limited": "countless.limiting.limited",
}


if not TYPE_CHECKING:  # with it, type checkers would accept every name

    def __getattr__(name: str) -> Any:
        # A program that only counts must not pay for the planner at import: names are fetched when first used.
        if name not in _HOMES:
            raise AttributeError(f"module 'countless' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
