"""The gateway of examples/llm_gateway: three replicas, a stub model, and a coordinator, all as processes."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPException
from itertools import cycle
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from support.service import TIMEOUT_S, Server, until
from support.uvicorn_app import Reply, UvicornApp

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "llm_gateway"
TENANTS = ("shapes", "apart", "overload", "killed", "failing", "slow")
LIMIT, SLACK = 10_000, 0.01
MAX_TOKENS = 100
THREADS = 3  # for each replica
QUESTION = {"model": "stub", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": MAX_TOKENS}
MOST = len(json.dumps(QUESTION | {"stream": True})) + 16 + MAX_TOKENS  # what a request reserves


class Fleet:
    def __init__(self, server: Server, folder: Path, stack: ExitStack) -> None:
        self.server = server
        tenants = folder / "tenants.json"
        tenants.write_text(json.dumps({f"key-of-{tenant}": tenant for tenant in TENANTS}))
        self._folder, self._stack = folder, stack
        self.stub = stack.enter_context(UvicornApp("stub_model:app", EXAMPLE, folder / "stub.log"))
        self._variables = {
            "COUNTLESS_URL": server.url,
            "UPSTREAM_URL": f"{self.stub.url}/v1",
            "TENANTS": str(tenants),
        }
        self.gateways = [self.start(f"gateway-{number}") for number in range(3)]

    def start(self, name: str, app: str = "gateway:app", folder: Path = EXAMPLE, **variables: str) -> UvicornApp:
        started = UvicornApp(app, folder, self._folder / f"{name}.log", **(self._variables | variables))
        return self._stack.enter_context(started)

    def charged(self) -> int:
        return int(self.stub.request("GET", "/tokens").json["tokens"])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as stack:
        server = stack.enter_context(Server(tmp_path_factory.mktemp("state"), "--silent-after", "1s"))
        rule = {"name": "tokens/*", "limit": LIMIT, "slack": SLACK, "per": "month"}
        server.reader.request("POST", "/api/v1/budgets", rule)
        yield Fleet(server, tmp_path_factory.mktemp("fleet"), stack)


def ask(gateway: UvicornApp, tenant: str, **body: Any) -> Reply:
    """Ask until the request is decided. On a busy machine a new gateway may need longer for it than a request waits."""
    key, replies = f"Bearer key-of-{tenant}", list[Reply]()

    def is_decided() -> bool:
        replies.append(gateway.request("POST", "/v1/chat/completions", QUESTION | body, authorization=key))
        return replies[-1].status != 503

    until(is_decided, "a decision")
    return replies[-1]


def events(reply: Reply) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def refused_by_all(gateways: list[UvicornApp], tenant: str) -> bool:
    return all(ask(gateway, tenant).status == 429 for gateway in gateways)


def overload(gateways: list[UvicornApp], tenant: str) -> None:
    """Threads that ask, every second time for a stream, until they are refused or their gateway is gone."""

    def run(gateway: UvicornApp) -> None:
        for stream in cycle((False, True)):
            try:
                reply = ask(gateway, tenant, stream=stream)
            except (OSError, HTTPException):
                return
            if reply.status == 429:
                return
            assert reply.status == 200, reply

    threads = [Thread(target=run, args=(gateway,)) for gateway in gateways for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5 * TIMEOUT_S)
        assert not thread.is_alive()


def test_completions_and_streams_have_the_shape_of_the_openai_api(fleet: Fleet) -> None:
    reply = ask(fleet.gateways[0], "shapes")
    assert reply.status == 200
    assert reply.json["choices"][0]["message"]["role"] == "assistant"
    assert reply.json["usage"]["total_tokens"] > 0
    reply = ask(fleet.gateways[1], "shapes", stream=True)
    assert (reply.status, reply.headers["content-type"].split(";")[0]) == (200, "text/event-stream")
    chunks = events(reply)
    assert chunks[0]["choices"][0]["delta"] == {"content": "word "}
    assert chunks[-1]["usage"]["completion_tokens"] == len(chunks) - 1


def test_bad_requests_and_unknown_keys_are_refused(fleet: Fleet) -> None:
    gateway = fleet.gateways[0]
    assert ask(gateway, "unknown").status == 401
    for body in (
        {"max_tokens": -1},
        {"max_tokens": 10**30},
        {"n": 1.5},
        {"messages": None},
        {"messages": [{"content": [1]}]},
    ):
        reply = ask(gateway, "shapes", **body)
        assert (reply.status, reply.json["error"]["type"]) == (400, "invalid_request_error")


def test_unreachable_model_costs_nothing(fleet: Fleet) -> None:
    gateway = fleet.start("failing", UPSTREAM_URL="http://127.0.0.1:1/v1")
    for _ in range(2):  # each of them reserves more than half of the budget
        reply = ask(gateway, "failing", max_tokens=int(0.6 * LIMIT))
        assert (reply.status, reply.json["error"]["type"]) == (502, "upstream_error")


EXPIRING = """
from countless.client.budgets import budget
budget.HOLD_S = 1e-9  # in place of ten minutes
from gateway import app
"""


@pytest.mark.parametrize("stream", [False, True])
def test_answer_that_outlasts_its_reservation_is_complete(stream: bool, fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "expiring.py").write_text(EXPIRING)
    gateway = fleet.start("expiring", "expiring:app", tmp_path, PYTHONPATH=str(EXAMPLE))
    reply = ask(gateway, "slow", stream=stream)
    assert (reply.status, "Traceback" in gateway.log()) == (200, False)
    assert events(reply) if stream else reply.json["usage"]


def test_overloaded_tenant_never_uses_more_than_its_budget_and_all_but_the_slack(fleet: Fleet) -> None:
    before = fleet.charged()
    overload(fleet.gateways, "overload")
    # Reservations of other requests may have been in the way. Once the coordinator knows that they are over, none is.
    least = LIMIT - max(SLACK * LIMIT, MOST)
    until(lambda: refused_by_all(fleet.gateways, "overload") and fleet.charged() - before >= least, "no more tokens")
    assert fleet.charged() - before <= LIMIT
    refusal = ask(fleet.gateways[0], "overload")
    assert refusal.json["error"]["code"] == "insufficient_quota"
    assert int(refusal.headers["retry-after"]) > 0
    assert ask(fleet.gateways[0], "apart").status == 200


@pytest.mark.soak
def test_tokens_stay_below_the_budget_when_a_replica_is_killed_and_its_successor_returns_the_rest(
    fleet: Fleet, tmp_path: Path
) -> None:
    before = fleet.charged()
    victim = fleet.start("victim", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    load = Thread(target=overload, args=([victim, *fleet.gateways], "killed"))
    load.start()
    until(lambda: fleet.charged() - before > LIMIT // 4, "a quarter of the budget")
    victim.kill()
    load.join(5 * TIMEOUT_S)
    assert fleet.charged() - before <= LIMIT
    left_behind = list(tmp_path.iterdir())
    successor = fleet.start("successor", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    ask(successor, "killed")
    until(lambda: not any(file.exists() for file in left_behind), "what the killed replica has left is handed in")
    open_reservations = THREADS * MOST  # of the replica that was killed: they count as used
    least = LIMIT - max(SLACK * LIMIT, MOST) - open_reservations
    all_of_them = [successor, *fleet.gateways]
    until(lambda: refused_by_all(all_of_them, "killed") and fleet.charged() - before >= least, "no more tokens")
    assert fleet.charged() - before <= LIMIT
