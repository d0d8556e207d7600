"""Chat models of LangChain with a limit of three calls."""

import asyncio
from collections.abc import Callable

from langchain_core.language_models.fake_chat_models import FakeListChatModel

import countless
from countless.errors import InvalidParameter, LimitExceeded
from countless.integrations.langchain import LangchainLimiter

client = countless.connect()
limiter = LangchainLimiter("langchain", client, wait=60.0)
model = FakeListChatModel(responses=["hello"], rate_limiter=limiter)
print(model.invoke("hi").content)
print(asyncio.run(model.ainvoke("hi")).content)
print("".join(str(chunk.content) for chunk in model.stream("hi")))
calls: list[Callable[[], object]] = [lambda: model.invoke("hi"), lambda: asyncio.run(model.ainvoke("hi"))]
for call in calls:
    try:
        call()
    except LimitExceeded:
        print("refused")
print(limiter.acquire(blocking=False), asyncio.run(limiter.aacquire(blocking=False)))
try:
    LangchainLimiter("langchain", client, wait=-1)
except InvalidParameter as error:
    print(error.parameter)
client.close()
