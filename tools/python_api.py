"""What a program may use, with the words of the code itself."""

import inspect
from types import FunctionType

from countless.client.asgi import CountRequests
from countless.client.budget import ClientBudget
from countless.client.client import Client, connect
from countless.client.counter import Counter
from countless.client.watch import Watch
from countless.core.answer import Answer
from countless.core.budget.coordinator import Usage
from countless.core.budget.decision import Decision
from countless.core.budget.hold import Hold
from countless.inprocess.budget import Budget, SpendingSite
from countless.inprocess.network import Traffic
from countless.inprocess.tracker import Tracker

HEAD = """# Python API

*Written by `python -m tools.reference` from the docstrings.*

`from countless import Tracker, Budget, Answer, Client, connect, CountlessError, InvalidParameter`. The privacy library
has [a page of its own](../theory/partial-dp.md); everything else is for people who read the
[architecture](../architecture.md).
"""
NOT_FOR_PROGRAMS = {
    *("before_fork", "after_fork_parent", "after_fork_child", "debug_state"),
    *("active", "settled", "hand_ins", "resend", "receive", "end", "renew", "after_fork"),  # of ClientBudget
}
PUBLIC: tuple[object, ...] = (
    *(connect, Client, Counter, ClientBudget, Watch, CountRequests, Tracker, Answer, Traffic),
    *(Budget, SpendingSite, Hold, Decision, Usage),
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
    return str(signature.replace(parameters=parameters)).replace("'", "").replace('"', "")


def _words(thing: object) -> str:
    """Its docstring; examples in fences."""
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    return "\n\n".join(f"```pycon\n{text}\n```" if text.startswith(">>>") else text for text in paragraphs)


def _line(thing: object) -> str:
    return " ".join(_words(thing).split())
