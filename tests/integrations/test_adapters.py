"""Our adapters on base classes like those of the libraries, with a real coordinator."""

import sys
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import HTTPException

from countless.client.client import Client, connect
from countless.errors import LimitExceeded, Starved
from integrations.base_classes import modules
from support.service import TIMEOUT_S, Server

ADAPTERS = ("langchain", "llama_index", "pydantic_ai", "litellm.logger", "litellm.proxy")
LIMIT = 1000
AUTH = SimpleNamespace(
    api_key="a" * 64, key_alias=None, user_id="ada", team_id=None, org_id=None, end_user_id=None,
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        rules = {"calls/*": 2, "tokens/*": LIMIT, "teams/*": LIMIT, "money/*": LIMIT, "requests/*": LIMIT}
        for name, limit in rules.items():
            rule = {"name": name, "limit": limit, "slack": 0.0, "per": "month"}
            server.reader.request("POST", "/api/v1/budgets", rule)
        server.reader.request("POST", "/api/v1/budgets", {"name": "busy/*", "limit": 1, "kind": "in_flight"})
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    with connect(server.url) as client:
        yield client


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield
    for name in ADAPTERS:
        sys.modules.pop(f"countless.integrations.{name}", None)


def adapter(name: str) -> Any:
    return import_module(f"countless.integrations.{name}")


async def test_langchain_takes_a_unit_for_each_call(client: Client) -> None:
    limiter = adapter("langchain").LangchainLimiter("calls/langchain", client, wait=TIMEOUT_S)
    assert limiter.acquire()
    assert await limiter.aacquire()
    with pytest.raises(LimitExceeded):
        limiter.acquire()
    with pytest.raises(LimitExceeded):
        await limiter.aacquire()
    assert not limiter.acquire(blocking=False)
    assert not await limiter.aacquire(blocking=False)


async def test_llama_index_takes_a_unit_for_each_call(client: Client) -> None:
    limiter = adapter("llama_index").LlamaIndexLimiter("calls/llama-index", client, wait=TIMEOUT_S)
    limiter.acquire(num_tokens=7)
    await limiter.async_acquire()
    with pytest.raises(LimitExceeded):
        limiter.acquire()
    with pytest.raises(LimitExceeded):
        await limiter.async_acquire(7)


async def test_pydantic_ai_holds_a_unit_while_an_agent_runs(client: Client) -> None:
    waiting = adapter("pydantic_ai").PydanticAILimiter("busy/agents", client, wait=TIMEOUT_S)
    hasty = adapter("pydantic_ai").PydanticAILimiter("busy/agents", client, wait=0)
    await waiting.acquire("agent")
    with pytest.raises((LimitExceeded, Starved)):
        await hasty.acquire("agent")
    waiting.release()
    await waiting.acquire("agent")
    waiting.release()


class LiteLLMProxy:
    """A request to LiteLLM's proxy, as the proxy tells its callbacks of it."""

    def __init__(self, client: Client, **settings: Any) -> None:
        from countless.integrations.litellm.settings import settings_from

        self.client = client
        section = {"tokens": ["tokens/{model}", "teams/{team}"], "wait": TIMEOUT_S, **settings}
        self.limits = adapter("litellm.proxy").ProxyLimits(settings_from(section, "test"), client)
        self.details: dict[str, Any] = {"litellm_call_id": "chosen"}  # by the caller

    async def ask(self, model: Any, kind: str = "acompletion", **body: Any) -> dict[str, Any]:
        data = {"model": model, "litellm_call_id": "chosen", **body}
        if kind != "image_generation":  # whose log is made later
            data["litellm_logging_obj"] = SimpleNamespace(model_call_details=self.details)
        await self.limits.async_pre_call_hook(user_api_key_dict=AUTH, cache=None, data=data, call_type=kind)
        return data

    async def report(self, payload: dict[str, Any], response: Any = None, **details: Any) -> None:
        kwargs = {**self.details, **details, "standard_logging_object": payload}
        await self.limits.async_log_success_event(kwargs, response, None, None)

    async def spent(self, name: str) -> int:
        """In a budget nobody else uses."""
        low, high = 0, LIMIT
        while low < high:
            left = (low + high + 1) // 2
            try:
                (await self.client.budget(name).areserve(left, TIMEOUT_S)).settle(0)
                low = left
            except LimitExceeded:
                high = left - 1
        return LIMIT - low


MESSAGES = [{"role": "user", "content": "Hello!"}]


async def test_litellm_call_is_settled_by_its_usage_whatever_its_caller_calls_it(client: Client) -> None:
    proxy = LiteLLMProxy(client, max_tokens=500)
    data = await proxy.ask("chat", messages=MESSAGES, metadata={"user_api_key_team_id": "blue"}, countless_call="x")
    assert data["max_tokens"] == 500
    await proxy.report({"total_tokens": 30}, countless_call="x")
    assert (await proxy.spent("tokens/chat"), await proxy.spent("teams/blue")) == (30, 0)


async def test_litellm_image_is_settled_by_its_usage_although_its_log_is_made_later(client: Client) -> None:
    proxy = LiteLLMProxy(client, in_flight=["busy/{model}"])
    await proxy.ask("image", "image_generation", prompt="a cat")
    await proxy.report({"total_tokens": 1}, litellm_call_id="of another call")
    assert len(proxy.limits.calls) == 1
    await proxy.report({"total_tokens": 400})
    assert (await proxy.spent("tokens/image"), len(proxy.limits.calls)) == (400, 0)


async def test_litellm_image_that_has_failed_holds_nothing(client: Client) -> None:
    proxy = LiteLLMProxy(client, in_flight=["busy/{model}"])
    data = await proxy.ask("no-image", "image_generation", prompt="a cat")
    await proxy.limits.async_post_call_failure_hook(data, ValueError(), AUTH)
    assert (await proxy.spent("tokens/no-image"), len(proxy.limits.calls)) == (0, 0)


@pytest.mark.parametrize(
    ("payload", "tokens", "money"),
    [
        ({"total_tokens": 30, "response_cost": 0.0004}, 55, 500),  # of an attempt that broke off: its cost, too
        ({"total_tokens": 60, "response_cost": 0.0004}, 60, 400),
        ({"prompt_tokens": 50, "completion_tokens": 20, "response_cost": 0.0004}, 70, 400),
    ],
)
async def test_litellm_usage_is_that_of_the_attempt_that_has_answered(
    client: Client, payload: dict[str, Any], tokens: int, money: int
) -> None:
    model = f"attempts-{tokens}"
    proxy = LiteLLMProxy(client, money=["money/{model}"], max_tokens=490)
    await proxy.ask(model, messages=MESSAGES)
    await proxy.report(payload, SimpleNamespace(usage=SimpleNamespace(total_tokens=55)))
    assert (await proxy.spent(f"tokens/{model}"), await proxy.spent(f"money/{model}")) == (tokens, money)


async def test_litellm_call_without_tokens_spends_its_money(client: Client) -> None:
    proxy = LiteLLMProxy(client, tokens=[], money=["money/{model}"])
    await proxy.ask("dall-e", "image_generation", prompt="a cat")
    await proxy.report({"response_cost": 0.0004})
    assert await proxy.spent("money/dall-e") == 400


@pytest.mark.parametrize("alias", ["nick", "hidden"])
async def test_litellm_alias_of_a_model_has_the_budget_of_the_model(client: Client, alias: str) -> None:
    proxy = LiteLLMProxy(client, tokens=[], requests=["requests/{model}"])
    before = await proxy.spent("requests/gpt")
    await proxy.ask(alias, messages=MESSAGES)
    await proxy.report({})
    assert await proxy.spent("requests/gpt") == before + 1


@pytest.mark.parametrize("model", ["a,b", ["a"], 7])
async def test_litellm_request_for_several_models_is_refused(client: Client, model: Any) -> None:
    with pytest.raises(HTTPException, match="the name of one model") as refused:
        await LiteLLMProxy(client).ask(model, messages=MESSAGES)
    assert refused.value.status_code == 400


async def test_litellm_calls_of_tools_are_no_calls_of_models(client: Client) -> None:
    proxy = LiteLLMProxy(client)
    await proxy.ask("mcp-tool-call", "call_mcp_tool", messages=MESSAGES)
    await proxy.ask(None, "afile_content")
    assert len(proxy.limits.calls) == 0


async def test_litellm_tells_the_proxys_limits_of_requests_that_say_no_log(client: Client) -> None:
    assert "_PROXY_" in type(LiteLLMProxy(client).limits).__name__
