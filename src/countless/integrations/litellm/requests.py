"""The most that a request to a model can cost: tokens of its prompt, and what it may generate."""

import json
from collections.abc import Callable, Mapping, MutableMapping
from math import ceil
from typing import Any, NamedTuple

from countless.core.budget.amounts import MAX_AMOUNT
from countless.errors import InvalidParameter

MILLIONTHS = 1_000_000
_PROMPTS = (
    "messages", "input", "prompt", "contents", "query", "documents", "tools", "functions", "response_format", "system",
    "instructions", "systemInstruction", "system_instruction",
)  # fmt: skip
_MOST = ("max_completion_tokens", "max_tokens", "max_output_tokens", "maxOutputTokens")
_ANSWERS = ("n", "best_of", "candidateCount", "candidate_count")
_SECTIONS = ("extra_body", "config", "generationConfig")  # their fields count as those of the request
_GENERATE = {  # where a request says how much it may generate, by LiteLLM's name of the call
    "completion": "max_tokens", "acompletion": "max_tokens", "text_completion": "max_tokens",
    "atext_completion": "max_tokens", "anthropic_messages": "max_tokens", "responses": "max_output_tokens",
    "aresponses": "max_output_tokens", "agenerate_content": "maxOutputTokens",
    "agenerate_content_stream": "maxOutputTokens",
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
    given = _numbers(data, _MOST)
    if not given and kind not in _GENERATE:
        return 0
    if not given:
        given = [most]
        _set_limit(data, _GENERATE[kind], most)
    prompts = data.get("prompt")
    several = len(prompts) if isinstance(prompts, list) and prompts and not isinstance(prompts[0], int) else 1
    return max(given) * max(_numbers(data, _ANSWERS), default=1) * several


def _numbers(data: Mapping[str, Any], names: tuple[str, ...]) -> list[int]:
    return [_positive(section, name) for section in _sections(data) for name in names if section.get(name) is not None]


def _sections(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [data, *(data[name] for name in _SECTIONS if isinstance(data.get(name), dict))]


def _set_limit(data: MutableMapping[str, Any], name: str, most: int) -> None:
    if name != "maxOutputTokens":
        data[name] = most
        return
    section = "generationConfig" if "generationConfig" in data and "config" not in data else "config"
    data[section] = {**(data.get(section) or {}), name: most}


def _positive(data: Mapping[str, Any], name: str) -> int:
    value = data[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidParameter(name, value, "an integer from 1")
    return value


def prompt_tokens(data: Mapping[str, Any], count: Count) -> int:
    """Tokens of what is sent to the model; its bytes, which are never fewer, where it cannot be counted."""
    prompts = [{name: section[name] for name in _PROMPTS if section.get(name)} for section in _sections(data)]
    return sum(_tokens(str(data.get("model", "")), sent, count) for sent in prompts if sent)


def _tokens(model: str, sent: Mapping[str, Any], count: Count) -> int:
    try:
        return count(model, sent)
    except Exception:
        return len(json.dumps(sent, default=str).encode())
