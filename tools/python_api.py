"""The pages of the Python reference: which public name is on which."""

from typing import NamedTuple

from countless.asgi import CountRequests, LimitRequests, header_key
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
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import Usage
from countless.core.family.answer import LabelCount, Top
from countless.core.family.distribution import Quantile, Rank
from countless.core.periods.spans import SpanCount, SpanRate
from countless.core.periods.window import TotalAnswer, Window
from countless.errors import (
    CounterRefused,
    CountlessError,
    InvalidParameter,
    LimitExceeded,
    ServiceError,
    UnknownBudget,
    UnknownName,
)
from countless.inprocess.budget import Budget, SpendingSite
from countless.inprocess.distribution import Distribution, ObservingSite
from countless.inprocess.family import Family, LabelSite
from countless.inprocess.tracker import CountingSite, Tracker
from countless.inprocess.world import Traffic
from countless.integrations.fastapi import Limited
from countless.limiting.limited import limited
from countless.wsgi import CountRequests as CountWsgiRequests
from countless.wsgi import LimitRequests as LimitWsgiRequests
from countless.wsgi import header_key as wsgi_header_key
from tools.python_layout import section

WRITTEN = "*Written by `python -m tools.reference`.*"
PREPARED = """
    countless budget create tokens --limit 1000
    countless budget create team --limit 5000
    countless budget create exports --limit 3 --kind in_flight
"""


class Page(NamedTuple):
    """What stands at the top of a page, and the names below it."""

    head: str
    names: tuple[object, ...]


CLIENT = Page(
    f"""# Client

A program counts over many processes with `countless.connect`, counters, distributions, watches, and middleware that
counts requests.

{WRITTEN}

`Per` is `"minute"`, `"hour"`, `"day"` or `"month"`. Public names are in `countless`, `countless.errors` and the modules
named here; other modules are internal ([architecture](repo:design/architecture.md)).
""",
    (
        *(connect, default_client, Client, Counter, ClientDistribution, Watch, CountRequests, CountWsgiRequests),
        *(CountlessError, InvalidParameter, UnknownName, CounterRefused),
    ),
)
LIMITS = Page(
    f"""# Limits

A program spends a limit that all processes share with budgets, holds, decisions, and middleware that limits requests.

{WRITTEN}

An operator creates budgets; the examples use these:
{PREPARED}
[Functions and routes](../../guides/limit-functions.md), [slowapi and flask-limiter](../../guides/web-frameworks.md).
""",
    (
        *(ClientBudget, BudgetRule, Decision, Hold, Slot),
        *(limited, LimitRequests, header_key, LimitWsgiRequests, wsgi_header_key, Limited),
        *(LimitExceeded, UnknownBudget),
    ),
)
ANSWERS = Page(
    f"""# Answers

A program reads counts with a `Reader`, and gets answers with the fields below.

{WRITTEN}

| shared field | type | meaning |
|---|---|---|
| `estimate` | `float` | the published number |
| `lower`, `upper` | `float` | the truth is between these, unless the state is `degraded` or `learning` |
| `state` | `str` | how sure it is: [`exact`, `holding`, `learning` or `degraded`](../glossary.md#states-of-an-answer) |
| `counter` | `str` | its name |
| `as_of` | `datetime` | the time of reading |
| `as_dict()` | `dict` | the fields, to log or to send as JSON |
""",
    (
        *(Reader, TotalCount, WindowCount, RollingCount, Rate, TopCounts, SeriesCount, Quantiles, QuantileValue),
        ServiceError,
    ),
)
IN_PROCESS = Page(
    f"""# In one process

For tests, simulations and notebooks, a `Tracker`, `Budget`, `Family` or `Distribution` counts and limits without a
server: production's sites and coordinator in one process, with method calls for a network.

{WRITTEN}

`estimate`, `lower`, `upper`, `state` and `as_dict()` are as in [answers](answers.md). Everything is safe to use from
many threads.
""",
    (
        *(Tracker, CountingSite, Answer, Traffic, TotalAnswer, SpanCount, SpanRate, Window),
        *(Budget, SpendingSite, Usage),
        *(Family, LabelSite, LabelCount, Top, Distribution, ObservingSite, Quantile, Rank),
    ),
)
PAGES = {"client": CLIENT, "limits": LIMITS, "answers": ANSWERS, "in-process": IN_PROCESS}
PUBLIC = tuple(name for page in PAGES.values() for name in page.names)
CONSTRUCTED = (
    *(Tracker, Budget, Family, Distribution, Reader),
    *(CountRequests, CountWsgiRequests, LimitRequests, LimitWsgiRequests, Limited),
)
PLACES = {"countless.wsgi": " (WSGI)", "countless.integrations.fastapi": " (FastAPI)"}


def page(name: str) -> str:
    """The page of this name, with a section for each public name on it."""
    head, things = PAGES[name]
    sections = (section(thing, title(thing), thing in CONSTRUCTED) for thing in things)
    return f"{head}\n{''.join(sections)}".rstrip("\n") + "\n"


def title(thing: object) -> str:
    """The name of a section."""
    return getattr(thing, "__name__", "") + PLACES.get(getattr(thing, "__module__", ""), "")
