"""The public names of the package: signatures, docstrings, fields, and an example of every call."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

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
from countless.client.budgets.spendable import Spendable
from countless.client.client import Client, connect
from countless.client.counter import Counter
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
from countless.core.windows.spans import SpanCount, SpanRate
from countless.core.windows.window import TotalAnswer, Window
from countless.errors import (
    CounterRefused,
    CountlessError,
    Exhausted,
    InvalidParameter,
    ServiceError,
    UnknownBudget,
    UnknownName,
)
from countless.inprocess.budget import Budget, SpendingSite
from countless.inprocess.counting_site import CountingSite
from countless.inprocess.distribution import Distribution, ObservingSite
from countless.inprocess.family import Family, LabelSite
from countless.inprocess.network import Traffic
from countless.inprocess.tracker import Tracker
from countless.wsgi import CountRequests as CountWsgiRequests

HEAD = """# Python API

*Written by `python -m tools.reference` from signatures, docstrings and `tools/python_examples.md`.*

Programs call `countless.connect`, `Reader`, `Tracker`, `Budget`, `Family` and `Distribution`; the types of what these
return, such as `countless.Counter` and `countless.TotalCount`, are there for annotations. Exceptions are in
`countless.errors`, with [a page of their own](errors.md), as [the privacy
library](repo:design/privacy/library.md) has. All other modules are internal;
the [architecture](repo:design/architecture.md) explains them.

A test runs the examples from top to bottom in one interpreter, against a coordinator that an operator has prepared:

    countless budget create tokens --limit 1000
    countless budget create team --limit 5000
    countless budget create exports --limit 3 --kind in_flight
"""
CONSTRUCTED = (Tracker, Budget, Family, Distribution, Reader, CountRequests, LimitRequests, CountWsgiRequests)
MEANINGS = {
    "estimate": "the published number",
    "lower": "the truth is at least this",
    "upper": "the truth is at most this",
    "alpha": "the relative error that is allowed",
    "delta": "the probability that the bounds are ever wrong",
    "state": "how sure it is: `exact`, `holding`, `learning`, `degraded`; of a window `open`, `complete`, `incomplete`",
    "round": "the number of the present round",
    "sites": "how many sites there are",
    "scheme": "the scheme in force",
    "silent": "the sites that cannot be reached",
    "floor": "the error is at most alpha times the larger of the count and this",
    "published": "the largest estimate so far, which never falls",
    "known": "the smallest and the largest total that the reports allow; None: only alpha says",
    "counter": "its name",
    "as_of": "the time of reading",
    "per": "`minute`, `hour`, `day` or `month`: it has windows, a budget periods; None: it has none",
    "tz": "the time zone of its periods",
    "anchor": "the second, minute, hour or day of month at which a period begins; None: the first",
    "slack": "the share of the limit that may be left when a request is refused",
    "kind": "`spending` or `in_flight`",
    "on_loss": "`charge` or `free`",
    "on_unreachable": "`refuse`, `wait` or `overdraft`",
    "max_names": "of a template: how many names may follow it at the same time",
    "template": "the template whose rule it is, such as `keys/*`",
    "rolling": "the length of every interval that the limit is for, in seconds; None: it is not rolling",
    "window": "which window, as it was asked for",
    "start": "its beginning",
    "end": "its end",
    "complete": "it is over, and every site has delivered its last count",
    "known_since": "None, unless the record of the past begins later than the span",
    "first_window": "when the first window of the counter began, if that is kept: before it nothing was counted",
    "over": "the length of the span",
    "rate": "events per second, with bounds",
    "share": "the share that was asked for",
    "quantiles": "one for each share that was asked for",
    "series": "the labelled series, the largest first",
    "up": "messages from sites to the coordinator",
    "down": "messages from the coordinator to sites",
    "bytes": "their encoded size; None unless `count_bytes` was given",
    "lost": "sites that were given up with events that may be missing",
    "waiting": "sites that have not delivered their last count yet",
    "period": "the number of the window",
    "reason": "why it was refused; None if it was allowed",
    "retry_after": "seconds until it may succeed, if they are known",
    "limit": "the limit",
    "leaked": "units that are counted as spent and may not have been",
    "label": "the label; None for all together",
    "labels": "the counts of labels, the largest first",
    "overflow": "events of labels beyond the cap",
    "total": "the count of all labels together",
    "q": "the share that was asked for",
    "value": "the value that was asked for",
    "exact": "The bounds are equal.",
    "held": "Units that are reserved.",
    "name": "Its name.",
    "contains": "Whether it is between the bounds.",
    "site": "The site of this name: call its `observe` for every value.",
}
ATTRIBUTES: dict[str, dict[str, str]] = {
    "Counter": {
        "add": "",
        "inc": "",
        "name": "Its name, with its labels.",
        "overflow_count": "How often `labels` has returned the overflow series.",
    },
    "ClientDistribution": {"name": "Its name."},
    "Watch": {
        "verdict": "`possibly` or `certainly`; None while the total is certainly below the threshold.",
        "last_error": "Why no answers arrive; None while they do.",
    },
    "Hold": {"units": "How many units it holds."},
    "CountingSite": {"add": "", "inc": ""},
    "Family": {"name": "Its name.", "scheme": "`deterministic` or `lattice`."},
    "LabelSite": {"inc": "As `add`."},
    "Distribution": {"name": "Its name."},
    "InvalidParameter": {
        "parameter": "The name of the parameter.",
        "value": "What it was.",
        "allowed": "What it must be.",
    },
    "UnknownName": {"hint": "What may have been meant, such as ` (did you mean 'a'?)`; empty if there is none."},
    "Exhausted": {
        "budget": "The name of the budget.",
        "units": "How many were wanted.",
        "retry_after": "Seconds until more is available, if that is known.",
    },
    "UnknownBudget": {"budget": "Its name."},
    "CounterRefused": {"reasons": "Why, by counter."},
    "ServiceError": {"status": "Of the coordinator's answer; None if there was none."},
}
PUBLIC: tuple[object, ...] = (
    *(
        connect,
        Client,
        Counter,
        ClientDistribution,
        Spendable,
        ClientBudget,
        BudgetRule,
        Watch,
        CountRequests,
        LimitRequests,
        header_key,
    ),
    *(
        CountWsgiRequests,
        Reader,
        TotalCount,
        WindowCount,
        RollingCount,
        Rate,
        TopCounts,
        SeriesCount,
        Quantiles,
        QuantileValue,
    ),
    *(Tracker, CountingSite, Answer, Traffic, TotalAnswer, SpanCount, SpanRate, Window),
    *(Budget, SpendingSite, Hold, Slot, Decision, Usage),
    *(Family, LabelSite, LabelCount, Top, Distribution, ObservingSite, Quantile, Rank),
    *(CountlessError, InvalidParameter, UnknownName, ServiceError, CounterRefused, Exhausted, UnknownBudget),
)
EXAMPLES = Path(__file__).parent / "python_examples.md"


def page() -> str:
    """One section for each name."""
    return HEAD + "".join(section(thing, title(thing), thing in CONSTRUCTED) for thing in PUBLIC)


def title(thing: object) -> str:
    """The name of a section."""
    name: str = getattr(thing, "__name__", "")
    return f"{name} (WSGI)" if thing is CountWsgiRequests else name


def calls(thing: object) -> list[str]:
    """The names of its methods and properties that programs use."""
    if not isinstance(thing, type):
        return [title(thing)]
    members = [name for name, value in vars(thing).items() if _is_call(name, value) and name not in fields(thing)]
    return [*ATTRIBUTES.get(thing.__name__, ()), *members]


def example(name: str, examples: Path = EXAMPLES) -> str:
    """The doctest of a section, empty if its docstring has all."""
    text = examples.read_text("utf-8")
    found = re.search(rf"^## {re.escape(name)}\n\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""


def section(thing: Any, name: str, constructed: bool, examples: Path = EXAMPLES) -> str:
    """The signature if programs call it, its docstring, its fields and calls, and the example."""
    parts = [f"\n## {name}\n"]
    if isinstance(thing, FunctionType) or constructed:
        parts.append(_code(name.partition(" ")[0], thing))
    parts.append(_words(thing) + "\n")
    if isinstance(thing, type):
        table, members = fields(thing), calls(thing)
        if table and examples == EXAMPLES:
            parts.append("| field | type | meaning |\n|---|---|---|\n" + "".join(_row(*each) for each in table.items()))
        if members:
            parts.append("".join(_member(thing, member) for member in members))
    if example(name, examples):
        parts.append(f"```pycon\n{example(name, examples)}\n```\n")
    return "\n".join(part for part in parts if part.strip()).rstrip() + "\n"


def _is_call(name: str, value: object) -> bool:
    if name.startswith("_"):
        return False
    return isinstance(value, property) or (isinstance(value, FunctionType) and name == value.__name__)


def fields(kind: type) -> dict[str, object]:
    """The fields of a named tuple or a dataclass, with their types."""
    if issubclass(kind, tuple) or "__dataclass_fields__" in vars(kind):
        return dict(kind.__annotations__)
    return {}


def _row(name: str, kind: object) -> str:
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    escaped = _short(text).replace("|", "\\|")
    return f"| `{name}` | `{escaped}` | {MEANINGS[name]} |\n"


def _member(thing: type, name: str) -> str:
    words = ATTRIBUTES.get(thing.__name__, {}).get(name)
    if words == "":
        return f"- **`{name}(n: int = 1) -> None`**: Count `n` events.\n"  # a slot that holds a bound method
    if words is not None:
        return f"- **`{name}`**: {words}\n"
    value = vars(thing)[name]
    if isinstance(value, FunctionType):
        parameters, result = _signature(value)
        return f"- **`{name}({', '.join(parameters)}){result}`**: {_line(value) or MEANINGS.get(name, name + '.')}\n"
    return f"- **`{name}`**: {_line(value) or MEANINGS.get(name, name + '.')}\n"


def _code(name: str, function: Callable[..., object]) -> str:
    """A signature in a block, one parameter to a line if it is long."""
    parameters, result = _signature(function)
    text = f"{name}({', '.join(parameters)})"
    if len(text) > 100:
        text = f"{name}(\n" + "".join(f"    {each},\n" for each in parameters) + ")"
    return f"```py\n{text}{'' if result == ' -> None' else result}\n```\n"


def _signature(function: Callable[..., object]) -> tuple[list[str], str]:
    """The parameters, with * where keywords begin, and the result."""
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "_")]
    texts = [_short(str(each)) for each in parameters]
    keywords = [index for index, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY]
    if keywords and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        texts.insert(keywords[0], "*")
    result = signature.return_annotation
    if isinstance(function, type) or result in (None, signature.empty):
        return texts, " -> None"
    text = result if isinstance(result, str) else inspect.formatannotation(result)
    return texts, f" -> {_short(text)}"


def _short(text: str) -> str:
    text = re.sub(r"<class '(\w+)'>", r"\1", text)
    text = re.sub(r"Optional\[(Literal\[.*?\])\]", r"\1 | None", text)
    text = re.sub(r"LeakMap\(name='always 0 fixed positions'.*?frozenset\(\)\)", "NOTHING_LEAKS", text)
    text = re.sub(r"<function \S*<lambda> at \w+>", "...", text).replace("<built-in function time>", "time.time")
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text).replace("MutableMapping[str, Any]", "Scope")
    text = text.replace(
        "Callable[[Scope, Callable[[], Awaitable[Scope]], Callable[[Scope], Awaitable[None]]], Awaitable[None]]",
        "ASGIApp",
    )
    return re.sub(r"(^|: )'(\w+)'", r"\1\2", text)


def _words(thing: object) -> str:
    """Its docstring, with examples as code blocks."""
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    return "\n\n".join(f"```pycon\n{text}\n```" if text.startswith(">>>") else text for text in paragraphs)


def _line(thing: object) -> str:
    """Its docstring in one line, without examples."""
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    return " ".join(" ".join(text for text in paragraphs if not text.startswith(">>>")).split())
