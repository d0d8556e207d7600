"""The HTTP API, from the table of operations that routes and OpenAPI document come from, with an example of each."""

import inspect
import re
from pathlib import Path
from typing import NamedTuple

from countless.server.http.api.openapi import Operation
from countless.server.http.budgets.routes import BUDGET_OPERATIONS
from countless.server.http.monitoring import PROBES
from countless.server.http.routes import OPERATIONS

HEAD = """# HTTP API

Every request that a coordinator answers, with an example.

*Written by `python -m tools.reference`.*

`GET /api/v1/openapi.json` is the OpenAPI 3.1 document with every field. A token is sent in the
header `Authorization: Bearer TOKEN`; its [scope](../operate/tokens-and-tls.md) says what it allows.
[Errors](errors.md#errors-of-the-api) are JSON. `...` stands for more fields. Names are
percent-encoded in URLs; slashes may be written as they are.
"""
EXAMPLES = Path(__file__).parent / "http_examples.md"
SITES = tuple(each for each in OPERATIONS if "/sites" in each.path)
GROUPS = {
    "Counters": tuple(each for each in OPERATIONS if each not in SITES),
    "Sites": SITES,
    "Budgets": BUDGET_OPERATIONS,
    "Probes and metrics": PROBES,
}


class Example(NamedTuple):
    """A request and its answer."""

    method: str
    address: str
    body: str
    status: int
    answer: str


def examples() -> dict[str, Example]:
    """By operation, in the order in which they can be played."""
    sections = re.findall(r"^## (.*)\n\n((?:.|\n)*?)(?=\n## |\Z)", EXAMPLES.read_text(encoding="utf-8"), re.MULTILINE)
    return {title: _example(text.strip()) for title, text in sections}


def title(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


def page() -> str:
    """A section for each group of operations."""
    played = examples()
    groups = []
    for name, operations in GROUPS.items():
        groups.append(f"## {name}\n")
        groups += [_section(each, played[title(each)]) for each in operations]
    return f"{HEAD}\n" + "\n".join(groups)


def _section(operation: Operation, example: Example) -> str:
    words, _, _ = (inspect.getdoc(operation.handler) or "").partition("\n\n")
    query = "&".join(f"{name}=..." for name in operation.query)
    query = f" Query: `?{query}`." if query else ""
    scope = f"Scope {operation.scope}." if operation.scope else "No token."
    answer = f"{example.status} {example.answer}".rstrip()
    request = "\n".join(filter(None, (f"{example.method} {example.address}", example.body)))
    text = f"### {title(operation)}\n\n{' '.join(words.split())} {scope}{query}\n"
    return f"{text}\n```http\n{request}\n\n{answer}\n```\n"


def _example(text: str) -> Example:
    request, _, answer = text.partition("\n\n")
    line, _, body = request.partition("\n")
    method, _, address = line.partition(" ")
    status, _, content = answer.partition(" ")
    return Example(method, address, body, int(status), content)
