"""Answers to requests of Envoy, without gRPC. `make integrations` runs the rest with real Envoys."""

import logging
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from countless.client.client import Client, connect
from countless.errors import InvalidParameter
from countless.integrations.envoy.decisions import Decisions
from countless.integrations.envoy.messages import OK, OVER_LIMIT, RateLimitRequest, RateLimitResponse
from countless.integrations.envoy.rules import EnvoyRules, envoy_settings
from support.service import TIMEOUT_S, Server

LIMITS: list[dict[str, Any]] = [
    {"domain": "edge", "descriptor": ["generic_key=all"], "budget": "all/{generic_key}", "policy": "all"},
    {"domain": "edge", "descriptor": ["address"], "budget": "addresses/{address}", "policy": "address"},
    {"domain": "edge", "descriptor": ["x-key", "path=/login"], "budget": "keys/{x_key}", "secret": ["x-key"]},
    {"domain": "edge", "descriptor": ["x-key", "path"], "budget": "paths/{path}", "shadow": True},
    {"domain": "edge", "descriptor": ["model"], "budget": "tokens/{model}", "late": True},
    {"domain": "edge", "descriptor": ["team"], "budget": "tokens/{team}", "late": True},
    {"domain": "edge", "descriptor": ["open"], "budget": "nowhere/{open}", "on_unreachable": "allow"},
    {"domain": "edge", "descriptor": ["closed"], "budget": "nowhere/{closed}"},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        for name in ("all/*", "addresses/*", "keys/*", "paths/*"):
            rule = {"name": name, "limit": 3, "slack": 0.0, "per": "month"}
            server.reader.request("POST", "/api/v1/budgets", rule)
        rule = {"name": "tokens/*", "limit": 1000, "slack": 0.0, "per": "month"}
        server.reader.request("POST", "/api/v1/budgets", rule)
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    with connect(server.url) as client:
        yield client


def decisions(client: Client, **options: Any) -> Decisions:
    section = {"limits": [{"wait": TIMEOUT_S, **limit} for limit in LIMITS], **options}
    return Decisions(EnvoyRules(envoy_settings(section), client))


def request(*descriptors: dict[str, str], domain: str = "edge", hits: int = 0) -> Any:
    asked = RateLimitRequest(domain=domain, hits_addend=hits)
    for entries in descriptors:
        descriptor = asked.descriptors.add()
        for key, value in entries.items():
            descriptor.entries.add(key=key, value=value)
    return RateLimitRequest.FromString(asked.SerializeToString())


async def codes(made: Decisions, *requests: Any) -> list[int]:
    return [(await made.answer(each)).overall_code for each in requests]


def headers(response: Any) -> dict[str, str]:
    return {header.key: header.value for header in response.response_headers_to_add}


async def test_limit_is_told_with_each_answer(client: Client) -> None:
    made = decisions(client)
    first = await made.answer(request({"address": "10.0.0.1"}))
    assert (first.overall_code, first.statuses[0].code, first.raw_body) == (OK, OK, b"")
    limit = first.statuses[0].current_limit
    assert (limit.requests_per_unit, limit.unit, limit.name) == (3, 5, "address")
    assert first.statuses[0].duration_until_reset.seconds > 0
    assert headers(first)["ratelimit-policy"].startswith('"address";q=3;w=')
    assert await codes(made, *[request({"address": "10.0.0.1"})] * 2) == [OK, OK]
    last = RateLimitResponse.FromString((await made.answer(request({"address": "10.0.0.1"}))).SerializeToString())
    assert (last.overall_code, last.statuses[0].code, last.statuses[0].limit_remaining) == (OVER_LIMIT, OVER_LIMIT, 0)
    assert b'"violated-policies": ["address"]' in last.raw_body
    assert {"ratelimit", "retry-after", "content-type"} < headers(last).keys()
    assert "content-length" not in headers(last)
    assert made.answers == {"ok": 3, "over_limit": 1}


async def test_all_limits_admit_a_request_or_none_is_charged(client: Client) -> None:
    made = decisions(client)
    both = [{"generic_key": "all"}, {"address": "10.0.1.1"}]
    assert await codes(made, request(both[1], hits=3), request(*both), request(*both)) == [OK, OVER_LIMIT, OVER_LIMIT]
    refused = await made.answer(request(*both))
    assert [status.code for status in refused.statuses] == [OK, OVER_LIMIT]
    others = [{"generic_key": "all"}, {"address": "10.0.1.2"}]
    admitted = await made.answer(request(*others))
    assert [(status.code, status.current_limit.name) for status in admitted.statuses] == [(OK, "all"), (OK, "address")]
    assert len(admitted.response_headers_to_add) == 4
    assert await codes(made, *[request(*others)] * 3) == [OK, OK, OVER_LIMIT]


async def test_hits_are_of_the_descriptor_or_else_of_the_request(client: Client) -> None:
    made = decisions(client)
    asked = request({"address": "10.0.2.1"}, hits=3)
    asked.descriptors[0].hits_addend.value = 2
    assert await codes(made, asked, asked) == [OK, OVER_LIMIT]
    asked.descriptors[0].hits_addend.value = 0
    assert await codes(made, asked, asked, request({"address": "10.0.2.1"}), asked) == [OK, OK, OK, OVER_LIMIT]
    assert await codes(made, request({"address": "10.0.2.2"}, hits=4)) == [OVER_LIMIT]


@pytest.mark.parametrize("hits", [500, 997, 1001, 10**6])
async def test_hits_that_have_happened_take_what_is_left(client: Client, hits: int) -> None:
    made = decisions(client)
    check = request({"model": f"gpt-{hits}"})
    check.descriptors[0].hits_addend.value = 0
    report = request({"model": f"gpt-{hits}"}, hits=hits)
    assert await codes(made, check, request({"model": f"gpt-{hits}"}, hits=400), check) == [OK, OK, OK]
    while (await made.answer(report)).overall_code == OK:
        assert await codes(made, check) == [OK]
    assert await codes(made, check) == [OVER_LIMIT]


async def test_hits_that_have_happened_are_charged_to_every_limit(client: Client) -> None:
    made = decisions(client)
    model, team = {"model": "shared"}, {"team": "blue"}
    assert await codes(made, request(model, hits=900), request(model, team, hits=300)) == [OK, OVER_LIMIT]
    assert await codes(made, request(model, hits=1), request(team, hits=701), request(team)) == [OVER_LIMIT] * 3
    assert made.answers == {"ok": 1, "over_limit": 4}


async def test_first_limit_that_matches_decides_and_a_secret_is_not_seen(client: Client, server: Server) -> None:
    made = decisions(client)
    assert await codes(made, *[request({"x-key": "k", "path": "/login"})] * 4) == [OK, OK, OK, OVER_LIMIT]
    assert await codes(made, *[request({"x-key": "k", "path": "/b/*"})] * 4) == [OK] * 4  # in shadow
    names = {row["name"] for row in server.reader.request("GET", "/api/v1/budgets")["budgets"]}
    assert {"keys/8254c329a92850f6", "paths/%2Fb%2F%2A"} <= names


@pytest.mark.parametrize(("unknown", "code"), [("pass", OK), ("refuse", OVER_LIMIT)])
async def test_descriptor_without_a_limit(
    client: Client, unknown: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    made = decisions(client, unknown=unknown)
    negative = request({"address": "10.0.3.1"})
    negative.descriptors[0].is_negative_hits = True
    reversed_keys = request({"path": "/login", "x-key": "k"})
    with caplog.at_level(logging.WARNING, "countless"):
        answers = await codes(made, request({"address": "x"}, domain="other"), reversed_keys, negative, request())
    assert (answers, made.unknown) == ([code] * 4, 4)
    assert "descriptor without a limit: domain='other' descriptors=[['address']]" in caplog.text
    known = {"address": f"10.0.3.2-{unknown}"}
    assert await codes(made, *[request(known, {"new": "1"})] * 4, request(known)) == (
        [OK, OK, OK, OVER_LIMIT, OVER_LIMIT] if unknown == "pass" else [OVER_LIMIT] * 4 + [OK]
    )


async def test_budget_that_is_not_known_is_refused_or_let_through(client: Client) -> None:
    made = decisions(client)
    assert await codes(made, request({"open": "1"}), request({"closed": "1"})) == [OK, OVER_LIMIT]
    assert b"quota temporarily unavailable" in (await made.answer(request({"closed": "1"}))).raw_body


async def test_key_that_makes_no_name_is_refused(client: Client) -> None:
    made = decisions(client)
    refused = await made.answer(request({"address": ""}))
    assert (refused.overall_code, b"the address of this request" in refused.raw_body) == (OVER_LIMIT, True)
    assert await codes(made, request({"address": "x" * 1000})) == [OVER_LIMIT]


LIMIT = {"domain": "edge", "descriptor": ["path"], "budget": "all"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "missing required field `limits`"),
        ({"limits": []}, r"length >= 1 - at `\$.limits`"),
        ({"limits": [LIMIT], "unknwon": "pass"}, "unknown field `unknwon`"),
        ({"limits": [LIMIT], "unknown": "deny"}, r"'deny' - at `\$.unknown`"),
        ({"limits": [LIMIT | {"wait": -1}]}, r"at `\$.limits\[0\].wait`"),
        ({"limits": [LIMIT, LIMIT | {"on_unreachable": "open"}]}, r"at `\$.limits\[1\].on_unreachable`"),
        ({"limits": [LIMIT | {"budget": "all/{key}"}]}, r"envoy.limits\[0\].budget = 'all/\{key\}' .* once: path"),
        ({"limits": [LIMIT | {"descriptor": ["a", "a"], "budget": "{a}"}]}, r"envoy.limits\[0\].budget = '\{a\}'"),
        ({"limits": [LIMIT | {"budget": ""}]}, r"envoy.limits\[0\].budget = ''"),
        ({"limits": [LIMIT | {"secret": ["key"]}]}, r"envoy.limits\[0\].secret = 'key' .* one of: path"),
        ({"limits": [LIMIT | {"policy": '"'}]}, r"envoy.limits\[0\].policy = '\"'"),
    ],
)
async def test_section_that_is_wrong_is_refused(client: Client, section: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        EnvoyRules(envoy_settings(section), client)


async def test_file_of_the_page(client: Client) -> None:
    page = (Path(__file__).parents[2] / "docs/guides/envoy.md").read_text(encoding="utf-8")
    section = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])["envoy"]
    assert envoy_settings(section) == envoy_settings({"limits": [section["limits"][0]]})
    match = EnvoyRules(envoy_settings(section), client).find("edge", [("generic_key", "api"), ("x-api-key", "k")])
    assert match is not None
    assert match.limit.budget_of(match.values).name == "keys/8254c329a92850f6"
    assert (match.limit.wait, match.limit.policy, match.late) == (0.2, "default", False)
