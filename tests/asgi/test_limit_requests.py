"""The middleware that limits requests: answers, header fields, keys, costs, shadow mode."""

import asyncio
import logging
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

import countless
from countless.asgi import LimitRequests, header_key
from countless.core.budget.decision import Reason
from countless.core.budget.rule import BudgetRule
from countless.errors import AboveLimit, InvalidParameter, UnknownBudget
from support.deciding import Client, always


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


async def accept_and_close(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


def limited(client: Client, budget: str = "all", **options: Any) -> TestClient:
    app = Starlette(routes=[Route("/", hello), WebSocketRoute("/live", accept_and_close)])
    app.add_middleware(LimitRequests, client=client, budget=budget, **options)
    return TestClient(app)


def test_admitted_request_gets_the_fields_of_the_draft() -> None:
    client = Client(always(Reason.ALLOWED))
    answer = limited(client).get("/")
    assert (answer.status_code, answer.text) == (200, "hello")
    assert answer.headers["ratelimit-policy"] == '"default";q=100;w=60'
    assert answer.headers["ratelimit"] in {f'"default";r=41;t={seconds}' for seconds in range(1, 18)}
    assert "retry-after" not in answer.headers
    assert client.made["all"].taken == [1]


def test_available_quota_of_an_admitted_request_is_at_least_one() -> None:
    """A caller that obeys the field must not stop while other replicas have units."""
    client = Client(always(Reason.ALLOWED))
    client.budget("all").left = 0
    assert limited(client).get("/").headers["ratelimit"].startswith('"default";r=1;t=')


def test_exhausted_budget_answers_429_with_the_end_of_the_period() -> None:
    client = Client(always(Reason.EXHAUSTED))
    answer = limited(client, policy="per key").get("/")
    retry = int(answer.headers["retry-after"])
    assert answer.status_code == 429
    assert 0 < retry <= 17
    assert answer.headers["ratelimit"] == f'"per key";r=0;t={retry}'
    assert answer.headers["ratelimit-policy"] == '"per key";q=100;w=60'
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "quota exceeded",
        "violated-policies": ["per key"],
    }
    assert client.counted() == {'limited_requests{mode="enforced",policy="per key",reason="exhausted"}': 1}


def test_budget_without_a_period_has_no_window_and_no_time_to_retry() -> None:
    answer = limited(Client(always(Reason.EXHAUSTED), BudgetRule(2**62))).get("/")
    assert answer.headers["ratelimit-policy"] == '"default";q=999999999999999'  # the largest integer of such a field
    assert answer.headers["ratelimit"] == '"default";r=0'
    assert "retry-after" not in answer.headers


def test_rolling_budget_has_its_window_and_the_time_until_units_come_back() -> None:
    rule = BudgetRule(5, rolling=60)
    refused = limited(Client(always(Reason.EXHAUSTED), rule), cost=lambda scope: 3).get("/")
    assert refused.headers["ratelimit-policy"] == '"default";q=5;w=60'
    assert refused.headers["ratelimit"] == '"default";r=2;t=4'  # a request that costs less may be admitted
    assert refused.headers["retry-after"] == "10"


def test_window_of_a_month_is_the_length_of_this_month() -> None:
    answer = limited(Client(always(Reason.ALLOWED), BudgetRule(5, per="month"))).get("/")
    window = int(answer.headers["ratelimit-policy"].partition(";w=")[2])
    assert window // 86_400 in (28, 29, 30, 31)


@pytest.mark.parametrize("reason", [Reason.STARVED, Reason.UNREACHABLE])
def test_request_without_an_answer_is_refused_or_let_through(reason: Reason) -> None:
    client = Client(always(reason))
    answer = limited(client).get("/")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["type"].endswith("#temporary-reduced-capacity")
    assert answer.json()["title"] == "quota temporarily unavailable"
    assert limited(client, on_unreachable="allow").get("/").text == "hello"
    assert client.counted() == {
        f'limited_requests{{mode="enforced",policy="default",reason="{reason}"}}': 1,
        f'limited_requests{{mode="let_through",policy="default",reason="{reason}"}}': 1,
    }


def test_exhausted_budget_is_not_let_through() -> None:
    assert limited(Client(always(Reason.EXHAUSTED)), on_unreachable="allow").get("/").status_code == 429


def test_unknown_budget_is_as_unreachable_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def unknown(name: str) -> Reason:
        raise UnknownBudget(name, "there is none")

    assert limited(Client(unknown)).get("/").status_code == 503
    assert limited(Client(unknown), on_unreachable="allow").get("/").status_code == 200
    assert "mode=enforced policy=default budget=all reason=no_budget: budget 'all' rejected" in caplog.text
    assert "there is none; create the rule: countless budget create all --limit N --per minute" in caplog.text


def test_missing_rule_of_a_key_is_logged_with_the_command_that_creates_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countless.client.http_requests.monotonic", lambda: 1000.0)

    def unknown(name: str) -> Reason:
        raise UnknownBudget(name, "there is none")

    web = limited(Client(unknown), "keys/{key}", key=lambda scope: "me")
    for _ in range(3):
        web.get("/")
    (line,) = [record.message for record in caplog.records]
    assert "countless budget create 'keys/*' --limit N --per minute" in line


def test_shadow_mode_lets_everything_pass_and_counts_what_it_would_refuse(caplog: pytest.LogCaptureFixture) -> None:
    decisions = iter([Reason.ALLOWED, Reason.EXHAUSTED, Reason.EXHAUSTED, Reason.UNREACHABLE])
    client = Client(lambda name: next(decisions))
    web = limited(client, shadow=True)
    with caplog.at_level(logging.WARNING, "countless"):
        answers = [web.get("/") for _ in range(4)]
    assert [answer.text for answer in answers] == ["hello"] * 4
    assert not any("ratelimit" in answer.headers for answer in answers)
    assert client.counted() == {
        'limited_requests{mode="shadow",policy="default",reason="exhausted"}': 2,
        'limited_requests{mode="shadow",policy="default",reason="unreachable"}': 1,
    }
    assert "mode=shadow policy=default budget=all reason=exhausted" in caplog.text


def test_log_has_few_lines_for_many_refusals(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("countless.client.http_requests.monotonic", lambda: now)
    web = limited(Client(always(Reason.EXHAUSTED)))
    with caplog.at_level(logging.INFO, "countless"):
        for now in (1000.0, 1000.1, 1000.9, 1001.0):  # noqa: B007 - the clock
            web.get("/")
    lines = [record for record in caplog.records if record.name == "countless"]
    assert {record.levelname for record in lines} == {"INFO"}
    assert [record.message.partition("(")[2] for record in lines] == [
        "0 others not logged)",
        "2 others not logged)",
    ]


def test_requests_are_limited_by_key_and_cost() -> None:
    client = Client(lambda name: Reason.EXHAUSTED if name == "keys/bad" else Reason.ALLOWED)
    web = limited(
        client,
        "keys/{key}",
        key=lambda scope: scope["query_string"].decode() or None,
        cost=lambda scope: int(dict(scope["headers"]).get(b"cost", b"1")),
    )
    assert web.get("/?good", headers={"cost": "7"}).status_code == 200
    assert web.get("/?bad").status_code == 429
    assert web.get("/?bad", headers={"cost": "0"}).status_code == 200
    assert web.get("/").status_code == 200
    assert {name: budget.taken for name, budget in client.made.items()} == {"keys/good": [7], "keys/bad": [1]}


def test_key_that_makes_no_valid_name_is_a_bad_request() -> None:
    web = limited(Client(always(Reason.ALLOWED)), "keys/{key}", key=lambda scope: "x" * 500)
    answer = web.get("/")
    assert (answer.status_code, "1 to 500 printable characters" in answer.json()["title"]) == (400, True)


@pytest.mark.parametrize("budget", ["keys/{key}", "keys/{key}/minute"])
def test_request_with_an_empty_key_is_a_bad_request(budget: str) -> None:
    client = Client(always(Reason.ALLOWED))
    answer = limited(client, budget, key=lambda scope: "").get("/")
    title = "the key of this request must be text of at least one character"
    assert (answer.status_code, answer.json()["title"], client.made) == (400, title, {})


def test_cost_that_is_no_number_of_units_is_a_bad_request_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    for wrong in (-1, None, 1.5, True):
        client = Client(always(Reason.ALLOWED))
        answer = limited(client, cost=lambda scope, wrong=wrong: wrong).get("/")
        title = "the cost of this request must be an integer of at least 0"
        assert (answer.status_code, answer.json()["title"], client.made) == (400, title, {}), wrong
        assert f"budget=all reason=invalid: cost = {wrong} is not allowed" in caplog.text


def test_header_key_is_a_hash_because_names_of_budgets_are_not_secret() -> None:
    key = header_key("X-API-Key")
    assert key({"headers": [(b"x-api-key", b"secret")]}) == "2bb80d537b1da3e3"
    assert key({"headers": []}) == "anonymous"
    assert header_key("x-user", missing="none")({"headers": []}) == "none"


def test_websockets_and_lifespans_pass_without_a_limit() -> None:
    client = Client(always(Reason.EXHAUSTED))
    with limited(client) as web, web.websocket_connect("/live"):
        pass
    assert client.made == {}


def test_fields_of_two_policies_are_both_sent() -> None:
    app = Starlette(routes=[Route("/", hello)])
    for policy in ("inner", "outer"):
        app.add_middleware(LimitRequests, client=Client(always(Reason.ALLOWED)), budget=policy, policy=policy)
    policies = TestClient(app).get("/").headers["ratelimit-policy"]
    assert policies == '"inner";q=100;w=60, "outer";q=100;w=60'


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"budget": "keys/{key}"}, "budget"),
        ({"budget": "all", "key": header_key("x")}, "budget"),
        ({"budget": "all", "on_unreachable": "guess"}, "on_unreachable"),
        ({"budget": "all", "wait": -1}, "wait"),
        ({"budget": "all", "wait": True}, "wait"),
        ({"budget": "all", "shadow": "false"}, "shadow"),
        ({"budget": "keys/{key}", "key": "x-api-key"}, "key"),
        ({"budget": "all", "cost": 5}, "cost"),
        ({"budget": "all", "policy": 'quo"te'}, "policy"),
        ({"budget": "all", "policy": ""}, "policy"),
        ({"budget": "all", "policy": "ü"}, "policy"),
        ({"budget": "all", "counter": ""}, "counter"),
    ],
)
def test_wrong_option_of_the_middleware_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParameter) as error:
        LimitRequests(hello, Client(always(Reason.ALLOWED)), **options)  # type: ignore[arg-type]
    assert error.value.parameter == field


async def test_waiting_request_does_not_block_the_event_loop(unused_url: str) -> None:
    """One request waits for a coordinator that is not there; another one, which is free, is answered meanwhile."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        answered.append(scope["path"])

    answered: list[str] = []
    client = countless.connect(unused_url)
    limit = LimitRequests(app, client, "all", cost=lambda scope: int(scope["path"] != "/free"), wait=3600)
    waiting = asyncio.create_task(limit({"type": "http", "path": "/waits"}, None, None))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await limit({"type": "http", "path": "/free"}, None, None)  # type: ignore[arg-type]
    assert answered == ["/free"]
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    client.close(0)


@pytest.mark.parametrize("on_unreachable", ["refuse", "allow"])
def test_request_that_costs_more_than_the_limit_is_refused_without_a_time_to_retry(on_unreachable: str) -> None:
    def refuse(name: str) -> Reason:
        raise AboveLimit(name, 101, 100)

    client = Client(refuse)
    answer = limited(client, on_unreachable=on_unreachable, cost=lambda scope: 101).get("/")
    assert (answer.status_code, "retry-after" in answer.headers) == (429, False)
    assert client.counted() == {'limited_requests{mode="enforced",policy="default",reason="above_limit"}': 1}


def test_middleware_above_the_one_its_key_comes_from_is_seen_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(always(Reason.EXHAUSTED))
    app = Starlette(routes=[Route("/", hello)])
    app.add_middleware(Authentication)
    app.add_middleware(  # it was added last, so that it runs first
        LimitRequests, client=client, budget="keys/{key}", key=lambda scope: scope.get("state", {}).get("tenant")
    )
    web = TestClient(app)
    assert {web.get("/").status_code for _ in range(60)} == {200}
    (line,) = caplog.messages
    assert line.startswith("no request limited yet: policy=default budget=keys/{key} requests=50: every key was None")


class Authentication:
    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})["tenant"] = "acme"
        await self._app(scope, receive, send)
