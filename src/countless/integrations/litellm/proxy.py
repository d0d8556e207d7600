"""Budgets in LiteLLM's proxy."""

from collections.abc import AsyncIterator
from contextvars import ContextVar
from math import ceil
from typing import Any

from fastapi import HTTPException

from countless.client.client import Client
from countless.errors import BudgetRefused, InvalidParameter
from countless.integrations.litellm.calls import ModelCalls
from countless.integrations.litellm.logger import UsageLogger, count_tokens, price_from, units_of
from countless.integrations.litellm.requests import Price, size_of
from countless.integrations.litellm.settings import LiteLLMSettings
from countless.limiting.charge import digest
from countless.limiting.responses import INVALID, PROBLEMS, RETRY_S, USED_UP, reason_of

FIELDS = frozenset({"key", "alias", "user", "team", "org", "end_user", "model"})
admitted: ContextVar[str] = ContextVar("admitted", default="")  # the call of this request: its failure does not name it
_HASH_CHARS = 64  # LiteLLM has keys as their SHA-256
_TOOL = "call_mcp_tool"  # the hooks get it as if it were a call of a model


class ProxyLimits(UsageLogger):
    """Admits requests to the proxy while their budgets last. `limits` is the one that its configuration describes."""

    def __init__(self, settings: LiteLLMSettings, client: Client | None = None) -> None:
        super().__init__(ModelCalls(settings, client))
        self._settings = settings

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> None:
        model = data.get("model")
        if model is None or call_type == _TOOL:  # it calls none
            return
        try:
            if not isinstance(model, str) or "," in model:  # LiteLLM would call each of them
                raise InvalidParameter("model", model, "the name of one model")
            model = _group(model)
            size = size_of(data, call_type, self._settings.max_tokens, count_tokens)
            price = _price(model) if self._settings.money else None
            identity = await self.admit(data, model, _fields(user_api_key_dict, model), units_of(size, price))
        except PROBLEMS as problem:
            raise _answer(problem) from problem
        if identity in self.calls:
            admitted.set(identity)

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> None:
        await self.calls.answered(admitted.get())

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        await self.calls.failed(admitted.get())

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncIterator[Any]:
        identity = admitted.get()
        try:
            async for chunk in response:
                self.calls.began(identity)
                yield chunk
        finally:  # even if the caller has gone
            await self.calls.answered(identity)


# LiteLLM tells other callbacks nothing of a request that says `no-log`.
ProxyLimits.__name__ = "_PROXY_CountlessLimits"


def _fields(auth: Any, model: str) -> dict[str, str | None]:
    key = auth.api_key
    return {
        "key": key if key is None else key[:16] if len(key) == _HASH_CHARS else digest(key.encode()),
        "alias": auth.key_alias,
        "user": auth.user_id,
        "team": auth.team_id,
        "org": auth.org_id,
        "end_user": auth.end_user_id,
        "model": model,
    }


def _group(model: str) -> str:
    """The group of models that an alias of the router is for."""
    alias = getattr(_router(), "model_group_alias", None) or {}
    group = alias.get(model, model)
    return str(group["model"] if isinstance(group, dict) else group)


def _price(model: str) -> Price:
    """The highest of its deployments."""
    router = _router()
    return price_from(None if router is None else router.get_model_group_info(model_group=model), model)


def _router() -> Any:
    from litellm.proxy.proxy_server import llm_router  # it is made after this module is imported

    return llm_router


def _answer(problem: BudgetRefused | InvalidParameter) -> HTTPException:
    reason = reason_of(problem)
    if reason == INVALID:
        return HTTPException(400, str(problem))
    if reason not in USED_UP:
        return HTTPException(503, str(problem), {"retry-after": str(RETRY_S)})
    retry = getattr(problem, "retry_after", None)
    return HTTPException(429, str(problem), None if retry is None else {"retry-after": str(ceil(retry))})
