"""What our adapters for large libraries override, as these have it: `make integrations` compares it with the real ones.

So `make test` needs none of them.
"""

from abc import ABC, abstractmethod
from types import ModuleType, SimpleNamespace
from typing import Any


class LangchainRateLimiter(ABC):
    @abstractmethod
    def acquire(self, *, blocking: bool = True) -> bool: ...

    @abstractmethod
    async def aacquire(self, *, blocking: bool = True) -> bool: ...


class LlamaIndexRateLimiter(ABC):
    @abstractmethod
    def acquire(self, num_tokens: int = 0) -> None: ...

    @abstractmethod
    async def async_acquire(self, num_tokens: int = 0) -> None: ...


class PydanticAIConcurrencyLimiter(ABC):
    @abstractmethod
    async def acquire(self, source: str) -> None: ...

    @abstractmethod
    def release(self) -> None: ...


class LiteLLMCustomLogger:
    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: Any, call_type: Any) -> Any: ...

    async def async_post_call_success_hook(self, data: Any, user_api_key_dict: Any, response: Any) -> Any: ...

    async def async_post_call_failure_hook(
        self, request_data: Any, original_exception: Any, user_api_key_dict: Any, traceback_str: Any = None
    ) -> Any: ...

    def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: Any
    ) -> Any: ...

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> Any: ...

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> Any: ...

    async def async_pre_call_deployment_hook(self, kwargs: Any, call_type: Any) -> Any: ...

    async def async_post_call_success_deployment_hook(
        self, request_data: Any, response: Any, call_type: Any
    ) -> Any: ...

    async def async_post_call_failure_deployment_hook(
        self, request_data: Any, exception: Any, call_type: Any, fallback_depth: Any = None
    ) -> Any: ...

    def log_pre_api_call(self, model: Any, messages: Any, kwargs: Any) -> Any: ...


PLACES = {  # in the libraries
    "langchain_core.rate_limiters": ("BaseRateLimiter", LangchainRateLimiter),
    "llama_index.core.rate_limiter": ("BaseRateLimiter", LlamaIndexRateLimiter),
    "pydantic_ai.concurrency": ("AbstractConcurrencyLimiter", PydanticAIConcurrencyLimiter),
    "litellm.integrations.custom_logger": ("CustomLogger", LiteLLMCustomLogger),
}


def modules(router: Any = None) -> dict[str, ModuleType]:
    """Modules that stand for the libraries."""
    made: dict[str, Any] = {}
    for path, (name, base) in PLACES.items():
        parts = path.split(".")
        for length in range(1, len(parts) + 1):
            made.setdefault(".".join(parts[:length]), ModuleType(".".join(parts[:length])))
        setattr(made[path], name, base)
    made["litellm"].token_counter = lambda model, messages=(), tools=(), text="", **_: 10 * len(messages) + len(text)
    made["litellm.proxy"], made["litellm.proxy.proxy_server"] = ModuleType("proxy"), ModuleType("proxy_server")
    made["litellm.proxy.proxy_server"].llm_router = router or SimpleNamespace(
        model_group_alias={"nick": "gpt", "hidden": {"model": "gpt", "hidden": True}},
        get_model_group_info=lambda model_group: {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6},
    )
    return made
