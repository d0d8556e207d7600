"""Budgets through a real agent: programs take, reserve and settle over HTTP on loopback and on a unix socket."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from support.agent import Agent
from support.service import TIMEOUT_S, Server, until

pytestmark = pytest.mark.slow
WAIT_S = 60  # the most that the agent allows


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        yield server


@pytest.fixture(scope="module")
def agent(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One for all tests; each has a budget of its own."""
    http = tmp_path_factory.mktemp("run") / "http"
    with Agent(server.url, "--http-socket", str(http)) as agent:
        yield agent


def create(server: Server, name: str, limit: int) -> None:
    server.reader.request("POST", "/api/v1/budgets", {"name": name, "limit": limit, "slack": 0.0})


def post(agent: Agent, budget: str, action: str, **body: object) -> tuple[int, Any]:
    if action != "settle":
        body = {"wait": WAIT_S, **body}
    return agent.request("POST", f"/api/v1/budgets/{budget}/{action}", body)


def test_take_over_http_spends_until_the_budget_is_exhausted(server: Server, agent: Agent) -> None:
    create(server, "acme/emails", 10)
    assert post(agent, "acme/emails", "take", n=7) == (200, {"decision": "allowed"})
    assert post(agent, "acme%2Femails", "take", n=3) == (200, {"decision": "allowed"})
    status, answer = post(agent, "acme/emails", "take")
    assert (status, answer["decision"]) == (429, "exhausted")
    assert answer["error"] == "budget 'acme/emails': not enough is left"
    metrics = agent.metrics()
    assert metrics['countless_budget_decisions_total{decision="exhausted"}'] >= 1
    assert "countless_budget_starved_seconds_total" in metrics


def test_empty_key_is_refused_and_takes_nothing_of_the_rule(server: Server, agent: Agent) -> None:
    create(server, "keys/*", 10)
    status, answer = post(agent, "keys/", "take")
    refused = "budget = 'keys/' is not allowed: budget must be a name with a key behind its last slash"
    assert (status, answer["error"]) == (400, refused)
    made = [each["name"] for each in server.reader.request("GET", "/api/v1/budgets")["budgets"]]
    assert [name for name in made if name.startswith("keys/")] == ["keys/*"]


def test_refusal_of_a_budget_with_periods_has_the_time_to_retry(server: Server, agent: Agent) -> None:
    rule = {"name": "monthly", "limit": 1, "slack": 0.0, "per": "month"}
    server.reader.request("POST", "/api/v1/budgets", rule)
    assert post(agent, "monthly", "take")[0] == 200
    for action in ("take", "reserve"):
        status, answer = post(agent, "monthly", action, n=1)
        assert (status, answer["decision"]) == (429, "exhausted")
        assert 0 <= answer["retry_after"] <= 31 * 86_400


def test_reserved_units_are_settled_and_the_rest_is_free_again(server: Server, agent: Agent) -> None:
    create(server, "tokens", 100)
    status, hold = post(agent, "tokens", "reserve", n=80)
    assert (status, hold["decision"], hold["units"], hold["expires_in"]) == (200, "allowed", 80, 600.0)
    assert post(agent, "tokens", "reserve", n=21)[0] == 429
    settlement = {"hold": hold["hold"], "used": 30}
    assert post(agent, "tokens", "settle", **settlement) == (200, {"spent": 30, "returned": 50})
    assert post(agent, "tokens", "settle", **settlement) == (200, {"spent": 30, "returned": 50})
    assert post(agent, "tokens", "settle", hold=hold["hold"], used=31)[0] == 409
    until(lambda: post(agent, "tokens", "take", n=70)[0] == 200, "the units that came back")


def test_limit_on_what_runs_at_the_same_time_is_reserved_and_returned(server: Server, agent: Agent) -> None:
    rule = {"name": "exports", "limit": 1, "slack": 0.0, "kind": "in_flight"}
    server.reader.request("POST", "/api/v1/budgets", rule)
    status, slot = post(agent, "exports", "reserve", n=1)
    assert status == 200
    assert post(agent, "exports", "reserve", n=1)[0] == 429
    status, answer = post(agent, "exports", "take")
    assert (status, "limits what runs at the same time" in answer["error"]) == (400, True)
    assert post(agent, "exports", "settle", hold=slot["hold"], used=0) == (200, {"spent": 0, "returned": 1})
    until(lambda: post(agent, "exports", "reserve", n=1)[0] == 200, "the unit that came back")


def test_hold_of_a_program_that_vanished_expires_as_spent(server: Server, agent: Agent) -> None:
    create(server, "expiring", 10)
    status, hold = post(agent, "expiring", "reserve", n=6, expires_in=0.05)
    assert status == 200
    until(lambda: agent.metrics()["countless_agent_holds_expired_total"] == 1, "the expiry")
    status, answer = post(agent, "expiring", "settle", hold=hold["hold"], used=0)
    assert (status, "count as spent" in answer["error"]) == (404, True)
    assert post(agent, "expiring", "take", n=5)[0] == 429
    assert post(agent, "expiring", "take", n=4)[0] == 200


@pytest.mark.parametrize(
    ("action", "body", "problem"),
    [
        ("take", {"n": 0}, "`int` >= 1 - at `$.n`"),
        ("take", {"n": -1}, "`int` >= 1 - at `$.n`"),
        ("take", {"n": 1.5}, "Expected `int`, got `float` - at `$.n`"),
        ("take", {"n": 1.5}, "n: an integer from 1 to 2**62"),
        ("reserve", {"n": 1, "expires_in": "long"}, "expires_in: seconds above 0, at most 86,400"),
        ("take", {"n": 2**62 + 1}, "<= 4611686018427387904 - at `$.n`"),
        ("take", {"wait": -1}, ">= 0.0 - at `$.wait`"),
        ("take", {"wait": 61}, "<= 60.0 - at `$.wait`"),
        ("take", {"units": 1}, "unknown field `units`"),
        ("reserve", {}, "missing required field `n`"),
        ("reserve", {"n": 1, "expires_in": 0}, "> 0.0 - at `$.expires_in`"),
        ("reserve", {"n": 1, "expires_in": 86401}, "<= 86400.0 - at `$.expires_in`"),
        ("settle", {"hold": "x"}, "missing required field `used`"),
        ("settle", {"hold": "x", "used": -1}, ">= 0 - at `$.used`"),
        ("settle", {"hold": 1, "used": 1}, "Expected `str`, got `int` - at `$.hold`"),
    ],
)
def test_bad_budget_request_names_the_field_and_the_range(
    server: Server, agent: Agent, action: str, body: dict[str, object], problem: str
) -> None:
    status, answer = agent.request("POST", f"/api/v1/budgets/unused/{action}", body)
    assert (status, problem in answer["error"]) == (400, True), answer


def test_unknown_budgets_web_pages_and_wrong_names_are_refused(server: Server, agent: Agent) -> None:
    status, answer = post(agent, "missing", "take")
    assert (status, "there is no budget 'missing'" in answer["error"]) == (404, True)
    assert post(agent, "missing", "reserve", n=1)[0] == 404
    assert post(agent, "missing", "settle", hold="x", used=0)[0] == 404
    assert post(agent, "a%07", "take")[0] == 400
    assert agent.request("POST", "/api/v1/budgets/missing/take", {}, origin="https://example.org")[0] == 403
    assert agent.request("GET", "/api/v1/budgets/missing/take")[0] == 405


def test_http_over_a_unix_socket_has_the_same_budgets(server: Server, agent: Agent) -> None:
    create(server, "shared", 2)
    assert agent.http_unix is not None
    with closing(HTTPConnection("localhost", timeout=TIMEOUT_S)) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(agent.http_unix))
        connection.request("POST", "/api/v1/budgets/shared/take", json.dumps({"wait": WAIT_S}))
        assert json.loads(connection.getresponse().read()) == {"decision": "allowed"}
    assert post(agent, "shared", "take")[0] == 200
    assert post(agent, "shared", "take")[0] == 429


def test_stopped_agent_hands_in_what_was_spent_and_held(server: Server, tmp_path: Path) -> None:
    create(server, "handed-in", 100)
    http = tmp_path / "http"
    with Agent(server.url, "--http-socket", str(http)) as agent:
        assert post(agent, "handed-in", "take", n=5)[0] == 200
        assert post(agent, "handed-in", "reserve", n=7)[0] == 200
        assert agent.stop() == (0, "")
    status = server.reader.request("GET", "/api/v1/budgets/handed-in")
    assert (status["used_lower"], status["used_upper"], status["leaked"]) == (12, 12, 0)
    assert not http.exists()


def test_budget_requests_without_a_coordinator_are_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with Agent(nowhere, "--timeout", "0.1") as agent:
        for action in ("take", "reserve"):
            status, answer = agent.request("POST", f"/api/v1/budgets/tokens/{action}", {"n": 1, "wait": 0})
            assert (status, answer["decision"]) == (503, "unreachable")
