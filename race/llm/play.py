"""All contestants get the same calls in the same real minutes. In the last one their servers are killed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import time

import httpx2

from race.llm.fleet import REPLICAS, SLACK, Fleet, fleets
from race.llm.judge import Outcome, over, wrong_refusals
from race.llm.model import MODEL, Model
from race.llm.workload import Call, calls, prompt_tokens

ADMITTED, DECIDED = 200, (200, 429)
KILLED_AT, AWAY_S = 10.0, 5.0  # seconds of the last minute
TURN_S = 0.02  # between the contestants' copies of a call: they share two cores
WARM_UP = 5  # calls of each proxy, with a key of their own
TIMEOUT_S = 30.0
KEY, WARM_UP_KEY = "sk-" + "a1b2c3d4" * 6, "sk-" + "9f8e7d6c" * 6


@dataclass(frozen=True, slots=True)
class Minute:
    """What became of the calls of one minute."""

    offered: int
    admitted: int
    refused: int
    failed: int  # neither
    charged: int  # tokens
    over: int
    wrong_refusals: int
    messages: int


@dataclass(frozen=True, slots=True)
class Result:
    contestant: str
    limit: int
    minutes: list[Minute]
    proxy_ms: list[float]  # of admitted calls before the kill: what the proxy took, sorted


@dataclass(frozen=True, slots=True)
class Reply:
    call: Call
    status: int
    sent: float  # seconds since the begin of the minute
    answered: float


def play(python: Path, minutes: int, limit: int, seed: int) -> list[Result]:
    return asyncio.run(_play(python, minutes, limit, seed))


async def _play(python: Path, minutes: int, limit: int, seed: int) -> list[Result]:
    planned = calls(minutes, REPLICAS, limit, seed)
    prompts = await asyncio.to_thread(prompt_tokens, python, MODEL, (call.prompt for call in planned))
    model = Model(planned, prompts)
    with fleets(python, model.port, limit) as started:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        async with model.serve(), httpx2.AsyncClient(timeout=TIMEOUT_S, limits=limits) as http:
            await asyncio.gather(*(_warm_up(http, fleet, planned) for fleet in started))
            begin = (time() // 60 + 1) * 60
            async with asyncio.TaskGroup() as group:
                runs = [
                    group.create_task(_run(http, fleet, (index, len(started)), planned, begin, minutes))
                    for index, fleet in enumerate(started)
                ]
    return [
        _result(fleet.name, limit, run.result(), prompts, minutes) for fleet, run in zip(started, runs, strict=True)
    ]


async def _warm_up(http: httpx2.AsyncClient, fleet: Fleet, planned: Sequence[Call]) -> None:
    for replica in range(REPLICAS):
        for call in planned[:WARM_UP]:
            status = await _ask(http, fleet.urls[replica], call, WARM_UP_KEY)
            if status != 200:
                raise RuntimeError(f"{fleet.name}: a proxy answers {status}")


async def _ask(http: httpx2.AsyncClient, url: str, call: Call, key: str) -> int:
    body = {"model": MODEL, "messages": [{"role": "user", "content": call.prompt}], "max_tokens": call.max_tokens}
    try:
        reply = await http.post(f"{url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})
    except httpx2.HTTPError:
        return 503
    return reply.status_code


async def _run(
    http: httpx2.AsyncClient, fleet: Fleet, turn: tuple[int, int], planned: Sequence[Call], begin: float, minutes: int
) -> tuple[list[Reply], list[int]]:
    """The replies, and the messages of the server at the begin of each minute and at the end."""
    index, number = turn

    async def ask(call: Call) -> Reply:
        origin = begin + 60 * call.minute
        await _sleep_until(origin + call.at + TURN_S * ((call.number + index) % number))
        sent = time()
        status = await _ask(http, fleet.urls[call.replica], call, KEY)
        return Reply(call, status, sent - origin, time() - origin)

    async def messages_at(moment: float) -> int:
        await _sleep_until(moment)
        return await asyncio.to_thread(fleet.messages)

    async with asyncio.TaskGroup() as group:
        replies = [group.create_task(ask(call)) for call in planned]
        messages = [group.create_task(messages_at(begin + 60 * minute)) for minute in range(minutes + 1)]
        group.create_task(_kill(fleet, begin + 60 * (minutes - 1)))
    return [reply.result() for reply in replies], [number.result() for number in messages]


async def _kill(fleet: Fleet, minute: float) -> None:
    await _sleep_until(minute + KILLED_AT)
    await asyncio.to_thread(fleet.server.stop)
    await _sleep_until(minute + KILLED_AT + AWAY_S)
    await asyncio.to_thread(fleet.server.start)


async def _sleep_until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time()))


def _result(
    name: str, limit: int, played: tuple[list[Reply], list[int]], prompts: Sequence[int], minutes: int
) -> Result:
    replies, messages = played
    by_minute = [[reply for reply in replies if reply.call.minute == minute] for minute in range(minutes)]
    measured = [
        _minute(mine, limit, prompts, after - before)
        for mine, (before, after) in zip(by_minute, pairwise(messages), strict=True)
    ]
    steady = [reply for mine in by_minute[:-1] for reply in mine if reply.status == ADMITTED]
    return Result(
        name, limit, measured, sorted(1000 * (each.answered - each.sent - each.call.seconds) for each in steady)
    )


def _minute(replies: Sequence[Reply], limit: int, prompts: Sequence[int], messages: int) -> Minute:
    outcomes = [_outcome(reply, prompts[reply.call.number]) for reply in replies if reply.status in DECIDED]
    admitted = sum(outcome.used is not None for outcome in outcomes)
    return Minute(
        len(replies),
        admitted,
        len(outcomes) - admitted,
        len(replies) - len(outcomes),
        sum(outcome.used or 0 for outcome in outcomes),
        over(outcomes, limit),
        wrong_refusals(outcomes, limit * (1 - SLACK)),
        messages,
    )


def _outcome(reply: Reply, prompt: int) -> Outcome:
    used = prompt + reply.call.answer if reply.status == ADMITTED else None
    return Outcome(reply.sent, reply.answered, prompt + reply.call.max_tokens, used)
