"""A model of LlamaIndex with a limit of four calls: `acomplete` of this one is two, because it calls `complete`."""

import asyncio
from collections.abc import Callable

from llama_index.core.llms.mock import MockLLM

import countless
from countless.errors import LimitExceeded
from countless.integrations.llama_index import LlamaIndexLimiter

client = countless.connect()
model = MockLLM()
model.rate_limiter = LlamaIndexLimiter("llama-index", client, wait=60.0)
print(model.complete("hi there").text)
print(asyncio.run(model.acomplete("hi there")).text)
print(list(model.stream_complete("hi there"))[-1].text)
calls: list[Callable[[], object]] = [lambda: model.complete("hi"), lambda: asyncio.run(model.acomplete("hi"))]
for call in calls:
    try:
        call()
    except LimitExceeded:
        print("refused")
client.close()
