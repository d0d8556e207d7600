"""The common part of LiteLLM's proxy and its library: counting tokens, and the end of a call.

When a call has ended, whether it was streamed or not, LiteLLM calls `async_log_success_event` with what it has used.
The call is known by an id of ours among the details that LiteLLM logs of it, because callers may choose
`litellm_call_id`. Where LiteLLM loses our id, everything that was reserved counts as spent.
"""

import json
from collections.abc import Mapping
from typing import Any

import litellm
from litellm.integrations.custom_logger import CustomLogger

from countless.errors import InvalidParameter
from countless.integrations.litellm.calls import Amounts, ModelCalls
from countless.integrations.litellm.requests import Price, Size, millionths
from countless.integrations.litellm.settings import Measure

_ID = "countless_call"


class UsageLogger(CustomLogger):
    """Settles calls by the usage that LiteLLM reports."""

    def __init__(self, calls: ModelCalls) -> None:
        super().__init__()
        self.calls = calls

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        await self.calls.settle(str(kwargs.get(_ID)), usage_of(kwargs))

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """A stream that broke off has used something. Other failures may be followed by another attempt."""
        if self.calls.streams(identity := str(kwargs.get(_ID))):
            await self.calls.settle(identity, usage_of(kwargs))

    async def admit(self, data: Mapping[str, Any], model: str, values: Mapping[str, str | None], units: Amounts) -> str:
        identity = await self.calls.admit(model, values, units)
        details = _details(data)
        if details is None:
            self.calls.spend(identity)
        else:
            details[_ID] = identity
        return identity


def call_id(data: Mapping[str, Any]) -> str:
    """The id of the call that was admitted with this data."""
    return str((_details(data) or {}).get(_ID))


def was_admitted(kwargs: Mapping[str, Any]) -> bool:
    """Return whether an event is one of a call that was admitted."""
    return _ID in kwargs


def _details(data: Mapping[str, Any]) -> dict[str, Any] | None:
    details = getattr(data.get("litellm_logging_obj"), "model_call_details", None)
    return details if isinstance(details, dict) else None


def usage_of(kwargs: Mapping[str, Any]) -> dict[Measure, int | None]:
    """The tokens and the money of a call that has ended; None for what is not known."""
    payload = kwargs.get("standard_logging_object") or {}
    tokens, dollars = payload.get("total_tokens"), payload.get("response_cost")
    if payload.get("cache_hit"):
        return {Measure.TOKENS: 0, Measure.MONEY: 0}
    return {Measure.TOKENS: tokens or None, Measure.MONEY: millionths(dollars) if tokens and dollars else None}


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
