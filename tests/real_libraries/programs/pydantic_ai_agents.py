"""Agents of Pydantic AI, two of which may run at once."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import countless
from countless.errors import InvalidParameter
from countless.integrations.pydantic_ai import PydanticAILimiter

running, most = 0, 0


async def main() -> None:
    with countless.connect() as client:
        agent = Agent(TestModel(), max_concurrency=PydanticAILimiter("agents", client))

        @agent.tool_plain
        async def work() -> str:
            global running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return "done"

        results = await asyncio.gather(*(agent.run("work") for _ in range(6)))
        print(len(results), "runs, at most", most, "at once")
        with client.budget("agents").acquire(2):
            print("all units are back")
        try:
            PydanticAILimiter("agents/{source}", client)
        except InvalidParameter as error:
            print(error.allowed)


asyncio.run(main())
