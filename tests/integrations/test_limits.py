"""The `limits` library, slowapi and flask-limiter, unchanged, with budgets of a real coordinator."""

import re
from collections.abc import Iterator
from time import time

import flask
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.testclient import TestClient
from flask_limiter import Limiter as FlaskLimiter
from limits import RateLimitItemPerMinute, parse
from limits.errors import ConfigurationError
from limits.storage import MemoryStorage, storage_from_string
from limits.strategies import STRATEGIES, FixedWindowRateLimiter
from slowapi import Limiter as SlowLimiter
from slowapi import _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.middleware import SlowAPIMiddleware
from starlette.responses import PlainTextResponse

from countless.core.budget.rolling import PANES
from countless.errors import InvalidParameter, Unreachable
from countless.integrations.limits import BudgetRateLimiter, BudgetStorage, key_of
from support.service import TIMEOUT_S, Server, python

pytestmark = pytest.mark.slow

ANY_WAIT = {"wait": str(TIMEOUT_S)}  # as text, because settings are text


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the rules of the rate limits below."""
    with Server(tmp_path_factory.mktemp("state")) as server:
        for name, limit, per in (("3-per-month", 3, "month"), ("100-per-month", 100, "month"), ("5-per-day", 2, "day")):
            rule = {"name": f"limits/{name}/*", "limit": limit, "slack": 0.0, "per": per}
            server.reader.request("POST", "/api/v1/budgets", rule)
        rule = {"name": "limits/3-in-7200s/*", "limit": 3, "slack": 0.0, "rolling": "2h"}
        server.reader.request("POST", "/api/v1/budgets", rule)
        yield server


@pytest.fixture
def storage(server: Server) -> Iterator[BudgetStorage]:
    storage = storage_from_string(f"countless{server.url.removeprefix('http')}", **ANY_WAIT)
    assert isinstance(storage, BudgetStorage)
    yield storage
    assert storage.client.close()


def test_rate_limit_is_a_budget_below_the_rule_whatever_the_identifiers_contain() -> None:
    minute = parse("100/minute")
    assert key_of(minute, "10.0.0.1", "/a/b") == "10.0.0.1:%2Fa%2Fb"
    assert key_of(minute, "a:b", "") == "a%3Ab:"
    assert key_of(minute, "ü\n").isprintable()
    assert key_of(minute, "\udcff") == "%ED%B3%BF"  # from bytes that are not UTF-8
    assert len(key_of(minute, "x" * 10_000)) < 100
    assert key_of(minute) == "(all)"
    assert key_of(RateLimitItemPerMinute(5, namespace="exports"), "a") == "exports:a"


@pytest.mark.parametrize("limit", ["5/second", "5 per 2 minutes", "5/year"])
def test_rate_limit_without_a_calendar_period_is_a_configuration_error(limit: str) -> None:
    with pytest.raises(ConfigurationError, match="per minute, hour, day, month, and no multiples"):
        BudgetRateLimiter.rule_of(parse(limit))


def test_hits_are_admitted_up_to_the_limit_of_the_rule(storage: BudgetStorage) -> None:
    limiter, limit = STRATEGIES["countless"](storage), parse("3/month")
    assert limiter.hit(limit, "hits", cost=0)
    assert limiter.test(limit, "hits", cost=3)
    assert not limiter.test(limit, "hits", cost=4)
    assert limiter.hit(limit, "hits", cost=2)
    assert limiter.hit(limit, "hits")
    assert not limiter.hit(limit, "hits")
    assert not limiter.test(limit, "hits")
    stats = limiter.get_window_stats(limit, "hits")
    assert stats.remaining == 0
    assert time() < stats.reset_time < time() + 32 * 86_400
    assert limiter.hit(limit, "another key")
    assert storage.check()


def test_moving_window_strategy_takes_rolling_budgets_of_any_length(
    storage: BudgetStorage, caplog: pytest.LogCaptureFixture
) -> None:
    limiter, limit = STRATEGIES["countless-moving-window"](storage), parse("3 per 2 hours")
    assert [limiter.hit(limit, "moving") for _ in range(4)] == [True, True, True, False]
    stats = limiter.get_window_stats(limit, "moving")
    assert stats.remaining == 0
    assert 0 < stats.reset_time - time() <= 7200 * (1 + 1 / PANES) + 1
    assert limiter.hit(limit, "another key")
    assert not [record for record in caplog.records if "rule differs" in record.message]
    with pytest.raises(ConfigurationError, match=r"'limits/5-in-1s/\*' --limit 5 --rolling 1s"):
        limiter.hit(parse("5/second"), "a")


def test_rule_of_the_coordinator_decides_and_the_difference_is_logged_once(
    storage: BudgetStorage, caplog: pytest.LogCaptureFixture
) -> None:
    limiter, limit = BudgetRateLimiter(storage), parse("5/day")
    assert [limiter.hit(limit, "differs") for _ in range(3)] == [True, True, False]
    (line,) = [record.message for record in caplog.records if "rule differs" in record.message]
    assert line.endswith(": rate_limit='5 per 1 day' rule='limits/5-per-day/* has --limit 2 --per day'")


def test_missing_rule_is_a_configuration_error_and_a_log_line_with_the_command_to_make_it(
    storage: BudgetStorage, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = BudgetRateLimiter(storage)
    command = r"countless budget create 'limits/7-per-hour/\*' --limit 7 --per hour"
    for call in (limiter.hit, limiter.test):
        with pytest.raises(ConfigurationError, match=command):
            call(parse("7/hour"), "a")
    (line,) = [record.message for record in caplog.records if "without a rule" in record.message]
    assert re.search(command, line)


def test_wrong_use_of_the_storage_and_the_strategy_is_an_error(storage: BudgetStorage) -> None:
    with pytest.raises(ConfigurationError, match='needs strategy="countless"'):
        FixedWindowRateLimiter(storage).hit(parse("3/month"), "a")
    with pytest.raises(ConfigurationError, match="no in-memory fallback"):
        BudgetRateLimiter(MemoryStorage())
    with pytest.raises(NotImplementedError, match="an operator resets budgets"):
        BudgetRateLimiter(storage).clear(parse("3/month"), "a")
    for wait in ("-1", "soon", "nan"):
        with pytest.raises(InvalidParameter, match="wait must be"):
            storage_from_string("countless://", wait=wait)


def test_hit_without_a_coordinator_raises_so_that_the_caller_decides(
    unused_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTLESS_URL", unused_url)
    storage = storage_from_string("countless://", wait=0)
    with pytest.raises(Unreachable):
        BudgetRateLimiter(storage).hit(parse("3/month"), "a")


def test_slowapi_takes_the_strategy_by_name(server: Server) -> None:
    limiter = SlowLimiter(
        key_func=lambda: "slowapi",
        storage_uri=f"countless{server.url.removeprefix('http')}",
        storage_options=dict(ANY_WAIT),
        strategy="countless",
        headers_enabled=True,
    )
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]

    @app.get("/")
    @limiter.limit("3/month")
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    web = TestClient(app)
    answers = [web.get("/") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit"] == "3"


def test_slowapi_limits_included_routes_only_if_they_are_decorated() -> None:
    """The warning of docs/guides/web-frameworks.md: remove it when the second number of 200s is 3, too."""
    limiter = SlowLimiter(key_func=lambda: "slowapi", default_limits=["3/day"])
    app, included = FastAPI(), APIRouter()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]
    app.add_middleware(SlowAPIMiddleware)

    @app.get("/direct")
    @included.get("/included")
    async def by_default() -> None: ...

    @included.get("/decorated")
    @limiter.limit("3/day")
    async def decorated(request: Request) -> None: ...

    app.include_router(included, prefix="/v1")
    web = TestClient(app)
    paths = ("/direct", "/v1/included", "/v1/decorated")
    assert [[web.get(path).status_code for _ in range(5)].count(200) for path in paths] == [3, 5, 3]


def test_flask_limiter_takes_the_strategy_by_name(server: Server) -> None:
    app = flask.Flask("test")
    app.config["RATELIMIT_STORAGE_URI"] = f"countless{server.url.removeprefix('http')}"
    app.config["RATELIMIT_STORAGE_OPTIONS"] = dict(ANY_WAIT)
    app.config["RATELIMIT_STRATEGY"] = "countless"
    app.config["RATELIMIT_HEADERS_ENABLED"] = True
    limiter = FlaskLimiter(lambda: "flask", app=app)

    @app.get("/")
    @limiter.limit("3/month")
    def hello() -> str:
        return "hello"

    web = app.test_client()
    answers = [web.get("/") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit"] == "3"


PROGRAM = """
import sys
from limits import parse
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES
import countless.integrations.limits
limiter = STRATEGIES["countless"](storage_from_string("countless://", wait="20"))
hits = 0
while limiter.hit(parse("100/month"), "three processes"):
    hits += 1
print(hits)
"""


@pytest.mark.slow
def test_three_processes_share_one_rate_limit(server: Server) -> None:
    processes = [python(PROGRAM, server.url) for _ in range(3)]
    hits = [int(process.communicate(timeout=TIMEOUT_S)[0]) for process in processes]
    assert sum(hits) == 100
