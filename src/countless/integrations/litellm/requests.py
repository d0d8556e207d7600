"""The most that a request to a model can cost: tokens of its prompt, and what it may generate."""

import json
from collections.abc import Callable, Mapping, MutableMapping
from math import ceil
from typing import Any, NamedTuple

from countless.core.budget.amounts import MAX_AMOUNT
from countless.errors import InvalidParameter

MILLIONTHS = 1_000_000
_PROMPTS = ("messages", "input", "prompt", "contents", "query", "documents")
_MOST = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_GENERATE = {  # where a request says how much it may generate, by LiteLLM's name of the call
    "completion": "max_tokens", "acompletion": "max_tokens", "text_completion": "max_tokens",
    "atext_completion": "max_tokens", "anthropic_messages": "max_tokens", "responses": "max_output_tokens",
    "aresponses": "max_output_tokens",
}  # fmt: skip

Count = Callable[[str, Mapping[str, Any]], int]


class Price(NamedTuple):
    """Dollars for a token."""

    prompt: float
    completion: float


class Size(NamedTuple):
    """Tokens, at most."""

    prompt: int
    completion: int

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def cost(self, price: Price) -> int:
        """Millionths of a dollar, rounded up."""
        return millionths(self.prompt * price.prompt + self.completion * price.completion)


def millionths(dollars: float) -> int:
    """
    >>> millionths(0.1), millionths(1.5e-7)
    (100000, 1)
    """
    return ceil(round(dollars * MILLIONTHS, 6))


def size_of(data: MutableMapping[str, Any], kind: str, most: int, count: Count) -> Size:
    """The size of a request. One that generates text and says not how much gets `most` as its limit."""
    size = Size(prompt_tokens(data, count), _completion_tokens(data, kind, most))
    if size.total > MAX_AMOUNT:
        raise InvalidParameter("max_tokens", size.completion, f"an integer from 1 to {MAX_AMOUNT}")
    return size


def _completion_tokens(data: MutableMapping[str, Any], kind: str, most: int) -> int:
    given = [name for name in _MOST if data.get(name) is not None]
    if kind in _GENERATE and not given:
        given = [_GENERATE[kind]]
        data[given[0]] = most
    choices = _positive(data, "n") if data.get("n") is not None else 1
    return max((_positive(data, name) for name in given), default=0) * choices


def _positive(data: Mapping[str, Any], name: str) -> int:
    value = data[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidParameter(name, value, "an integer from 1")
    return value


def prompt_tokens(data: Mapping[str, Any], count: Count) -> int:
    """Tokens of what is sent to the model; its bytes, which are never fewer, where it cannot be counted."""
    sent = {name: data[name] for name in (*_PROMPTS, "tools", "system", "instructions") if data.get(name)}
    if not sent:
        return 0
    try:
        return count(str(data.get("model", "")), sent)
    except Exception:
        return len(json.dumps(sent, default=str).encode())
