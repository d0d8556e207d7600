"""The public names of the package, with their docstrings."""

import inspect
import re
from types import FunctionType

from countless.client.asgi import CountRequests, LimitRequests, header_key
from countless.client.budgets.budget import ClientBudget
from countless.client.budgets.spendable import Spendable
from countless.client.client import Client, connect
from countless.client.counter import Counter
from countless.client.reader import Rate, Reader, RollingCount, SeriesCount, TopCounts, TotalCount, WindowCount
from countless.client.watch import Watch
from countless.core.answer import Answer
from countless.core.budget.coordinator import Usage
from countless.core.budget.decision import Decision
from countless.core.budget.hold import Hold, Slot
from countless.core.family.answer import LabelCount, Top
from countless.core.family.distribution import Quantile, Rank
from countless.core.windows.spans import SpanCount, SpanRate
from countless.core.windows.window import TotalAnswer, Window
from countless.inprocess.budget import Budget, SpendingSite
from countless.inprocess.distribution import Distribution, ObservingSite
from countless.inprocess.family import Family, LabelSite
from countless.inprocess.network import Traffic
from countless.inprocess.tracker import Tracker

HEAD = """# Python API

*Written by `python -m tools.reference` from the docstrings.*

`from countless import Tracker, Budget, Family, Distribution, Answer, Client, Reader, connect, CountlessError,
InvalidParameter`.
The privacy library has [a page of its own](privacy.md). All other modules are internal;
the [architecture](../architecture.md) explains them.
"""
NOT_FOR_PROGRAMS = {
    # of ClientBudget
    *("active", "settled", "hand_ins", "resend", "receive", "end", "renew", "after_fork"),
    *(
        "request",
        "attempt",
        "rejections",
        "require_known",
        "start_waiting",
        "stop_waiting",
        "undecided",
        "unreachable_by",
    ),
}
PUBLIC: tuple[object, ...] = (
    *(connect, Client, Counter, Spendable, ClientBudget, Watch, CountRequests, LimitRequests, header_key),
    *(Reader, TotalCount, WindowCount, RollingCount, Rate, TopCounts, SeriesCount),
    *(Tracker, Answer, Traffic, TotalAnswer, SpanCount, SpanRate, Window),
    *(Budget, SpendingSite, Hold, Slot, Decision, Usage),
    *(Family, LabelSite, LabelCount, Top, Distribution, ObservingSite, Quantile, Rank),
)


def page() -> str:
    """One section for each name."""
    return HEAD + "".join(_section(thing) for thing in PUBLIC)


def _section(thing: object) -> str:
    name = getattr(thing, "__name__", "")
    if isinstance(thing, FunctionType):
        return f"\n## {name}\n\n    {name}{_signature(thing)}\n\n{_words(thing)}\n"
    lines = [f"\n## {name}\n\n{_words(thing)}\n"]
    for attribute, value in vars(thing).items():
        if attribute.startswith("_") or attribute in NOT_FOR_PROGRAMS or not inspect.getdoc(value):
            continue
        if isinstance(value, property):
            lines.append(f"- **`{attribute}`**: {_line(value)}\n")
        elif isinstance(value, FunctionType) and attribute == value.__name__:
            lines.append(f"- **`{attribute}{_signature(value)}`**: {_line(value)}\n")
    return lines[0] + ("\n" if lines[1:] else "") + "".join(lines[1:])


def _signature(function: FunctionType) -> str:
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "_")]
    text = str(signature.replace(parameters=parameters)).replace("'", "").replace('"', "")
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def _words(thing: object) -> str:
    """Its docstring, with examples as code blocks."""
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    return "\n\n".join(f"```pycon\n{text}\n```" if text.startswith(">>>") else text for text in paragraphs)


def _line(thing: object) -> str:
    """Its docstring in one line, without examples."""
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    return " ".join(" ".join(text for text in paragraphs if not text.startswith(">>>")).split())
