"""What calls of models hold and spend, without LiteLLM. `make integrations` runs the rest with the real one."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from countless.client.client import Client, connect
from countless.errors import AboveLimit, InvalidParameter, LimitExceeded, UnknownBudget
from countless.integrations.litellm.calls import ModelCalls
from countless.integrations.litellm.requests import Price, Size, size_of
from countless.integrations.litellm.settings import LiteLLMSettings, Measure, settings_from
from support.service import TIMEOUT_S, Server

UNITS = {Measure.IN_FLIGHT: 1, Measure.REQUESTS: 1, Measure.TOKENS: 100, Measure.MONEY: 5000}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        for name in ("tokens/*", "requests/*"):
            rule = {"name": name, "limit": 1000, "slack": 0.0, "per": "month"}
            server.reader.request("POST", "/api/v1/budgets", rule)
        server.reader.request("POST", "/api/v1/budgets", {"name": "busy/*", "limit": 1, "kind": "in_flight"})
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    with connect(server.url) as client:
        yield client


class Calling:
    """The calls of one test, with budgets of their own."""

    def __init__(self, client: Client, name: str, **options: Any) -> None:
        self._client, self._name = client, name
        templates = {"in_flight": ["busy/{name}"], "requests": ["requests/{name}"], "tokens": ["tokens/{name}"]}
        self.calls = ModelCalls(settings_from({**templates, "wait": TIMEOUT_S, **options}, "test"), client)

    async def admit(self, **units: int) -> str:
        return await self.calls.admit(
            "gpt", {"name": self._name}, {**UNITS, **{Measure(k): n for k, n in units.items()}}
        )

    async def has(self, tokens: int, requests: int = 1000) -> bool:
        """Whether exactly so much is left, and nothing is in flight."""
        left = [(f"tokens/{self._name}", tokens), (f"requests/{self._name}", requests)]
        for name, units in left:
            try:
                (await self._client.budget(name).areserve(units + 1, TIMEOUT_S)).settle(0)
            except (LimitExceeded, AboveLimit):
                if units:
                    (await self._client.budget(name).areserve(units, TIMEOUT_S)).settle(0)
            else:
                return False
        (await self._client.budget(f"busy/{self._name}").aacquire(1, TIMEOUT_S)).release()
        return True


async def test_a_call_spends_what_it_has_used(client: Client) -> None:
    calling = Calling(client, "used")
    identity = await calling.admit()
    await calling.calls.settle(identity, {Measure.TOKENS: 30, Measure.MONEY: 7})
    assert await calling.has(tokens=970, requests=999)
    await calling.calls.settle(identity, {Measure.TOKENS: 30})  # a second report changes nothing
    assert await calling.has(tokens=970, requests=999)
    assert len(calling.calls) == 0


async def test_a_failed_call_spends_no_tokens_but_was_a_request(client: Client) -> None:
    calling = Calling(client, "failed")
    await calling.calls.failed(await calling.admit())
    assert await calling.has(tokens=1000, requests=999)


@pytest.mark.parametrize("reported_first", [True, False])
async def test_a_stream_that_breaks_off_is_settled_by_its_usage(client: Client, reported_first: bool) -> None:
    calling = Calling(client, f"broken-{reported_first}")
    identity = await calling.admit()
    calling.calls.began(identity)
    if reported_first:
        await calling.calls.interrupted(identity, {Measure.TOKENS: 12})
        await calling.calls.failed(identity)
    else:
        await calling.calls.failed(identity)
        await calling.calls.interrupted(identity, {Measure.TOKENS: 12})
    assert await calling.has(tokens=988, requests=999)


async def test_a_stream_that_another_attempt_continues_is_settled_by_what_that_has_used(client: Client) -> None:
    calling = Calling(client, "continued")
    identity = await calling.admit()
    await calling.calls.interrupted(identity, {Measure.TOKENS: 1})  # an attempt that has streamed nothing
    calling.calls.began(identity)
    await calling.calls.interrupted(identity, {Measure.TOKENS: 2})
    calling.calls.began(identity)
    await calling.calls.answered(identity)
    await calling.calls.settle(identity, {Measure.TOKENS: 40})
    assert await calling.has(tokens=960, requests=999)


async def test_usage_above_the_reserve_is_taken_and_what_is_not_left_is_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    calling = Calling(client, "above")
    await calling.calls.settle(await calling.admit(), {Measure.TOKENS: 150})
    assert await calling.has(tokens=850, requests=999)
    await calling.calls.settle(await calling.admit(tokens=800), {Measure.TOKENS: 900})
    assert "usage above the reserve not charged: budget=tokens/above model=gpt units=50" in caplog.text
    assert await calling.has(tokens=0, requests=998)  # the rest was taken


async def test_usage_that_is_missing_counts_as_the_reserve(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    calling = Calling(client, "missing")
    await calling.calls.settle(await calling.admit(), {Measure.TOKENS: None, Measure.MONEY: None})  # it holds no money
    assert "all that was reserved counts as spent: model=gpt missing=tokens" in caplog.text
    assert await calling.has(tokens=900, requests=999)


async def test_a_measure_that_refuses_returns_what_those_before_it_admitted(client: Client) -> None:
    calling = Calling(client, "refused")
    with pytest.raises(AboveLimit):
        await calling.admit(tokens=1001)
    assert await calling.has(tokens=1000)
    with pytest.raises(UnknownBudget):
        await Calling(client, "refused", money=["no/such"]).admit()
    assert await calling.has(tokens=1000)


async def test_an_answered_call_is_in_flight_no_more(client: Client) -> None:
    calling = Calling(client, "answered")
    await calling.calls.answered(await calling.admit())
    await calling.admit()  # at most one is in flight


async def test_a_call_that_never_ends_counts_as_spent(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    calling = Calling(client, "expired", expires_in=0.01)
    await calling.admit()
    while calling.calls:
        await asyncio.sleep(0.001)
    assert "call not settled, all that was reserved counts as spent: model=gpt reason=it has not ended" in caplog.text
    assert await calling.has(tokens=900, requests=999)


async def test_a_call_is_let_through_without_a_budget_if_the_settings_say_so(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    calling = Calling(client, "allowed", money=["no/such"], on_unreachable="allow")
    with caplog.at_level(logging.WARNING):
        identity = await calling.admit()
    assert "create the rule: countless budget create no/such --limit N --per minute" in caplog.text
    await calling.calls.settle(identity, {Measure.TOKENS: 10})
    assert await calling.has(tokens=990, requests=999)  # the budgets that are known hold
    with pytest.raises(AboveLimit):
        await calling.admit(tokens=1001)


async def test_missing_rule_is_named_with_its_kind(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnknownBudget):
        await Calling(client, "unruled", in_flight=["places/{name}"]).admit()
    assert "create the rule: countless budget create 'places/*' --limit N --kind in_flight" in caplog.text


def test_budgets_with_a_field_that_a_call_has_not_are_left_out() -> None:
    settings = LiteLLMSettings(tokens=("keys/{key}", "teams/{team}", "all"), money=("teams/{team}",))
    assert settings.names({"key": "a/b", "team": None}) == {Measure.TOKENS: ("keys/a%2Fb", "all")}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (None, "names of budgets in one of: in_flight, requests, tokens, money"),
        ({"token": ["all"]}, "unknown field `token`"),
        ({"tokens": "all"}, r"Expected `array`, got `str` - at `\$.tokens`"),
        ({"tokens": ["all"], "max_tokens": 0}, r"`\$.max_tokens`"),
        ({"tokens": ["keys/{"]}, "a name, which may have fields"),
        ({"tokens": ["keys/{name}"]}, "countless.tokens must be a name whose fields are of these: key"),
    ],
)
def test_wrong_settings_are_named(section: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        settings_from(section, "countless", frozenset({"key"}))


def count(model: str, sent: Any) -> int:
    return sum(map(len, sent))


def test_size_is_the_prompt_and_what_may_be_generated() -> None:
    body = {"messages": ["hi"], "max_tokens": 50, "n": 2}
    assert size_of(body, "acompletion", 1024, count) == Size(prompt=8, completion=100)
    for kind, field in (("acompletion", "max_tokens"), ("aresponses", "max_output_tokens")):
        body = {"input": "hi"}
        assert size_of(body, kind, 1024, count).completion == body[field] == 1024
    body = {"input": ["hi"]}
    assert (size_of(body, "aembedding", 1024, count).completion, body) == (0, {"input": ["hi"]})
    assert Size(10, 20).cost(Price(0.000001, 0.0000025)) == 60


@pytest.mark.parametrize(
    ("kind", "body", "completion"),
    [
        ("acompletion", {"max_tokens": 10, "max_completion_tokens": 300}, 300),
        ("acompletion", {"max_tokens": 10, "extra_body": {"max_tokens": 300}}, 300),
        ("acompletion", {"max_tokens": 10, "extra_body": {"n": 5}}, 50),
        ("acompletion", {"extra_body": {"max_tokens": 300}}, 300),
        ("atext_completion", {"prompt": "hi", "max_tokens": 10, "best_of": 5, "n": 2}, 50),
        ("atext_completion", {"prompt": ["hi", "ho", "ha"], "max_tokens": 10}, 30),
        ("atext_completion", {"prompt": [1, 2, 3], "max_tokens": 10}, 10),
        ("aimage_edit", {"prompt": "hi", "n": "2"}, 0),  # a form
        ("agenerate_content", {"generationConfig": {"maxOutputTokens": 20, "candidateCount": 2}}, 40),
    ],
)
def test_size_is_the_most_that_a_caller_can_have(kind: str, body: dict[str, Any], completion: int) -> None:
    assert size_of({"model": "m", **body}, kind, 1024, count).completion == completion


@pytest.mark.parametrize(
    ("body", "section"),
    [
        ({}, "config"),
        ({"generationConfig": {"temperature": 1}}, "generationConfig"),
        ({"generationConfig": {}, "config": {"temperature": 1}}, "config"),
    ],
)
def test_gemini_gets_its_limit_where_it_reads_it(body: dict[str, Any], section: str) -> None:
    assert size_of(body, "agenerate_content_stream", 1024, count).completion == 1024
    assert body[section]["maxOutputTokens"] == 1024
    assert "max_tokens" not in body


def test_prompt_is_counted_wherever_a_caller_puts_it() -> None:
    hidden = {"messages": ["hi"], "extra_body": {"messages": ["hi"], "instructions": "hi"}}
    assert size_of(hidden, "acompletion", 1, count).prompt == 2 * len("messages") + len("instructions")


@pytest.mark.parametrize("body", [{"max_tokens": 0}, {"max_tokens": "9"}, {"n": True}, {"max_tokens": 2**63}])
def test_wrong_sizes_are_named(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(body))):
        size_of(dict(body), "acompletion", 1024, count)


def test_a_prompt_that_cannot_be_counted_is_as_long_as_its_bytes() -> None:
    def fail(model: str, sent: Any) -> int:
        raise ZeroDivisionError

    assert size_of({"input": "hi"}, "aembedding", 1, fail).prompt == len('{"input": "hi"}')
