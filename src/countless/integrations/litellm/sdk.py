"""Budgets in programs that call models through LiteLLM's library.

    litellm.callbacks = [SdkLimits(tokens=["users/{user}"])]
    await litellm.acompletion(model="gpt-4o", messages=[...], user="ada")

Calls without `await`, such as `litellm.completion`, reach no hook that could refuse them: they are logged and counted
as not limited.
"""

import logging
from typing import Any

import litellm

from countless.client.client import Client
from countless.client.http_requests import SparseLog
from countless.integrations.litellm.calls import ModelCalls
from countless.integrations.litellm.logger import UsageLogger, call_id, count_tokens, price_from, units_of, was_admitted
from countless.integrations.litellm.requests import Price, size_of
from countless.integrations.litellm.settings import settings_from

NOT_LIMITED = "llm_not_limited"  # a counter
log = logging.getLogger("countless")


class SdkLimits(UsageLogger):
    """Admits calls while their budgets last; others raise what `ClientBudget.reserve` raises.

    Fields of names are `{user}`, `{model}` and what a call has in its `metadata`.

    Args:
        client: From `connect`. None: `default_client()`.
        options: `tokens`, `money`, `requests` and `in_flight`, lists of names, and the other fields of `Settings`.
    """

    def __init__(self, client: Client | None = None, **options: Any) -> None:
        self._settings = settings_from(options, "SdkLimits")
        self._log = SparseLog()
        super().__init__(ModelCalls(self._settings, client))

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any]:
        model = str(kwargs.get("model"))
        size = size_of(kwargs, str(getattr(call_type, "value", call_type)), self._settings.max_tokens, count_tokens)
        values = {**{name: str(value) for name, value in (kwargs.get("metadata") or {}).items()}, "model": model}
        if kwargs.get("user"):
            values["user"] = str(kwargs["user"])
        price = _price(model) if self._settings.money else None
        await self.admit(kwargs, model, values, units_of(size, price))
        return kwargs

    async def async_post_call_success_deployment_hook(self, request_data: Any, response: Any, call_type: Any) -> None:
        await self.calls.answered(call_id(request_data))

    async def async_post_call_failure_deployment_hook(
        self, request_data: Any, exception: Exception, call_type: Any, fallback_depth: int | None = None
    ) -> None:
        await self.calls.failed(call_id(request_data))

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """A stream that broke off; of other failures the hook above has been told."""
        await self.async_log_success_event(kwargs, response_obj, start_time, end_time)

    def log_pre_api_call(self, model: Any, messages: Any, kwargs: dict[str, Any]) -> None:
        """LiteLLM is about to send a request."""
        if not was_admitted(kwargs):
            self.calls.client().counter(NOT_LIMITED).labels(model=str(model)).inc()
            self._log.log(logging.WARNING, "call not limited, use litellm.acompletion: model=%s", model)


def _price(model: str) -> Price:
    try:
        info = litellm.get_model_info(model)
    except Exception:
        info = None
    return price_from(info, model)
