"""A program that calls models through LiteLLM's library, with LiteLLM's mock responses."""

import asyncio
import logging
from typing import Any

import litellm

import countless
from countless.errors import LimitExceeded
from countless.integrations.litellm import SdkLimits

MESSAGES = [{"role": "user", "content": "Hello!"}]


async def main() -> None:
    client = countless.connect()
    limits = SdkLimits(client, tokens=["users/{user}", "teams/{team}"], in_flight=["busy"], max_tokens=400, wait=60)
    litellm.callbacks = [limits]

    async def ask(**options: object) -> Any:
        return await litellm.acompletion(model="gpt-4o", messages=MESSAGES, mock_response="Hi there", **options)

    reply = await ask(user="ada", metadata={"team": "blue"})
    print("answer:", reply.choices[0].message.content)
    chunks = [chunk async for chunk in await ask(user="ada", stream=True)]
    print("stream:", "".join(chunk.choices[0].delta.content or "" for chunk in chunks))
    while limits.calls:  # until LiteLLM has reported their usage
        await asyncio.sleep(0.01)
    print("left for ada:", client.budget("users/ada").take(1000 - 2 * 40).reason)
    try:
        await ask(user="ada", max_tokens=500)
    except LimitExceeded as refusal:
        print("refused:", refusal.budget)
    try:
        await litellm.acompletion(
            model="gpt-4o", messages=MESSAGES, user="bob", mock_response=litellm.APIConnectionError("no", "x", "gpt-4o")
        )
    except litellm.APIConnectionError:
        print("failed:", client.budget("users/bob").take(1000).reason)
    logging.getLogger("countless").addHandler(logging.StreamHandler(open("/dev/stdout", "w")))  # noqa: SIM115, PTH123
    litellm.completion(model="gpt-4o", messages=MESSAGES, user="ada", mock_response="Hi")
    print("open:", len(limits.calls))
    client.close()


asyncio.run(main())
