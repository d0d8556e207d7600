"""The common part of LiteLLM's proxy and its library: counting tokens, and the end of a call.

When a call has ended, whether it was streamed or not, LiteLLM calls `async_log_success_event` with what it has used.
The call is known by an id of ours among the details that LiteLLM logs of it, because callers may choose
`litellm_call_id`. Images, audio, moderations and reranking have no log yet when they are admitted: theirs is made in
the same context. Where LiteLLM loses our id, everything that was reserved counts as spent.
"""

import json
from collections.abc import Mapping
from contextvars import ContextVar
from secrets import token_hex
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger

from countless.errors import InvalidParameter
from countless.integrations.litellm.calls import Amounts, ModelCalls
from countless.integrations.litellm.requests import Price, Size, millionths
from countless.integrations.litellm.settings import Measure

_ID = f"countless_{token_hex(8)}"  # fields of a request, which a caller names, get among the details, too
_unlogged: ContextVar[tuple[str, str]] = ContextVar("unlogged", default=("", ""))  # LiteLLM's id of a call, and ours


class UsageLogger(CustomLogger):
    """Settles calls by the usage that LiteLLM reports."""

    def __init__(self, calls: ModelCalls) -> None:
        super().__init__()
        self.calls = calls

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        await self.calls.settle(_identity(kwargs), usage_of(kwargs, response_obj))

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """One attempt has failed; another may follow."""
        await self.calls.interrupted(_identity(kwargs), usage_of(kwargs))

    async def admit(self, data: Mapping[str, Any], model: str, values: Mapping[str, str | None], units: Amounts) -> str:
        identity = await self.calls.admit(model, values, units)
        details, call = _details(data), data.get("litellm_call_id")
        if details is not None:
            details[_ID] = identity
        elif call:
            _unlogged.set((str(call), identity))
        else:
            self.calls.spend(identity)
        return identity


def call_id(data: Mapping[str, Any]) -> str:
    """The id of the call that was admitted with this data."""
    return str((_details(data) or {}).get(_ID))


def was_admitted(kwargs: Mapping[str, Any]) -> bool:
    """Return whether an event is one of a call that was admitted."""
    return _ID in kwargs


def _identity(kwargs: Mapping[str, Any]) -> str:
    call, identity = _unlogged.get()
    return str(kwargs.get(_ID) or (identity if call == kwargs.get("litellm_call_id") else None))


def _details(data: Mapping[str, Any]) -> dict[str, Any] | None:
    details = getattr(data.get("litellm_logging_obj"), "model_call_details", None)
    return details if isinstance(details, dict) else None


def usage_of(kwargs: Mapping[str, Any], response: Any = None) -> dict[Measure, int | None]:
    """The tokens and the money of a call that has ended; None for what is not known."""
    payload = kwargs.get("standard_logging_object") or {}
    parts = (payload.get("prompt_tokens") or 0) + (payload.get("completion_tokens") or 0)  # not all models add them up
    tokens, dollars = payload.get("total_tokens") or parts, payload.get("response_cost")
    if payload.get("cache_hit"):
        return {Measure.TOKENS: 0, Measure.MONEY: 0}
    answered = getattr(getattr(response, "usage", None), "total_tokens", None) or 0
    if answered > tokens:  # the payload has the usage of an attempt that broke off, and not of the one that answered
        tokens, dollars = answered, None
    return {Measure.TOKENS: tokens or None, Measure.MONEY: millionths(dollars) if dollars else None}


def count_tokens(model: str, sent: Mapping[str, Any]) -> int:
    chat = {name: sent[name] for name in ("messages", "tools") if name in sent} if "messages" in sent else {}
    rest = {name: value for name, value in sent.items() if name not in chat}
    tokens = litellm.token_counter(model=model, use_default_image_token_count=True, **chat) if chat else 0
    return int(tokens) + (int(litellm.token_counter(model=model, text=json.dumps(rest))) if rest else 0)


def units_of(size: Size, price: Price | None) -> dict[Measure, int]:
    units = {Measure.IN_FLIGHT: 1, Measure.REQUESTS: 1, Measure.TOKENS: size.total}
    return units if price is None else {**units, Measure.MONEY: size.cost(price)}


def price_from(info: Any, model: str) -> Price:
    """Raise InvalidParameter for a model whose price LiteLLM does not know."""
    values = dict(info or {})
    prompt, completion = values.get("input_cost_per_token"), values.get("output_cost_per_token")
    if prompt is None and completion is None:
        raise InvalidParameter("model", model, "one with a price: set input_cost_per_token and output_cost_per_token")
    return Price(prompt or 0.0, completion or 0.0)
