"""Three real LiteLLM proxies, a coordinator and a stub model, which is the witness of what was charged."""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from countless.client.client import Client, connect
from countless.errors import LimitExceeded
from real_libraries.large import Proxy, StubModel
from support.service import TIMEOUT_S, Server, until
from support.uvicorn_app import Reply

KEY = "sk-" + "a1b2c3d4" * 6
LIMIT = 20_000
MAX_TOKENS = 100
THREADS = 3  # for each proxy
MESSAGES = [{"role": "user", "content": "Hello!"}]

CONFIG = """
model_list:
  - model_name: "*"
    litellm_params: {model: "openai/*", api_base: "%s/v1", api_key: none}
router_settings:
  fallbacks: [{"falls": ["stands-in"]}]
  model_group_alias: {"nickname": "named"}
litellm_settings:
  num_retries: 0
  callbacks: countless.integrations.litellm.limits
callback_settings:
  countless:
    tokens: ["tokens/{model}", "keys/{key}", "teams/{team}"]
    requests: ["requests/{model}"]
    in_flight: ["busy/{model}"]
general_settings: {master_key: %s}
"""
RULES = [
    {"name": "tokens/*", "limit": LIMIT, "slack": 0.0, "per": "month"},
    {"name": "keys/*", "limit": 10**9, "per": "month"},
    {"name": "requests/*", "limit": 10**6, "per": "month"},
    {"name": "requests/few", "limit": 2, "slack": 0.0, "per": "month"},
    {"name": "busy/*", "limit": 1000, "kind": "in_flight", "on_loss": "free"},
    {"name": "busy/slow", "limit": 1, "slack": 0.0, "kind": "in_flight", "on_loss": "free"},
]


class Fleet:
    def __init__(self, server: Server, folder: Path, stack: ExitStack) -> None:
        self.server, self._folder, self._stack, self._logs = server, folder, stack, count()
        self.stub = stack.enter_context(StubModel(folder / "stub.log"))
        (folder / "config.yaml").write_text(CONFIG % (self.stub.url, KEY))
        self.proxies: list[Proxy] = [self.start(number) for number in range(3)]

    def start(self, number: int) -> Proxy:
        """Proxy `number`; its successor has the same `state_dir`."""
        log = self._folder / f"proxy-{next(self._logs)}.log"
        directory = str(self._folder / f"state-{number}")
        proxy = Proxy(self._folder, log, COUNTLESS_URL=self.server.url, COUNTLESS_CLIENT_STATE_DIR=directory)
        return self._stack.enter_context(proxy)

    def witness(self, what: str, model: str) -> int:
        found: dict[str, int] = self.stub.request("GET", "/witness").json[what]
        return found.get(model, 0)

    def budget(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.server.reader.request("GET", f"/api/v1/budgets/{name}")
        return answer


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as stack:
        server = stack.enter_context(Server(tmp_path_factory.mktemp("state"), "--silent-after", "1s"))
        for rule in RULES:
            server.reader.request("POST", "/api/v1/budgets", rule)
        yield Fleet(server, tmp_path_factory.mktemp("fleet"), stack)


def ask(proxy: Proxy, model: str, **body: Any) -> Reply:
    body = {"model": model, "messages": MESSAGES, "max_tokens": MAX_TOKENS, **body}
    return proxy.request("POST", "/v1/chat/completions", body, authorization=f"Bearer {KEY}")


def test_answers_and_streams_are_those_of_the_model(fleet: Fleet) -> None:
    reply = ask(fleet.proxies[0], "plain")
    assert (reply.status, reply.json["usage"]["completion_tokens"]) == (200, MAX_TOKENS // 2)
    reply = ask(fleet.proxies[0], "plain", stream=True)
    assert (reply.status, reply.text.rstrip().endswith("data: [DONE]")) == (200, True)


def test_request_without_a_limit_of_its_own_gets_one(fleet: Fleet) -> None:
    assert ask(fleet.proxies[0], "unlimited", max_tokens=None).status == 200
    assert fleet.witness("limits", "unlimited") == 1024


def test_request_that_cannot_be_admitted_is_refused_before_the_model_is_called(fleet: Fleet) -> None:
    proxy = fleet.proxies[0]
    for body, status in (({"max_tokens": -1}, 400), ({"max_tokens": LIMIT + 1}, 429), ({"n": 0}, 400)):
        reply = ask(proxy, "refused", **body)
        assert (reply.status, *body) == (status, *body)
        assert next(iter(body)) in reply.text or "limit of budget 'tokens/refused'" in reply.text
    assert fleet.witness("calls", "refused") == 0


def test_requests_are_limited_over_all_proxies(fleet: Fleet) -> None:
    assert [ask(proxy, "few").status for proxy in fleet.proxies] == [200, 200, 429]
    assert ask(fleet.proxies[0], "few").headers["retry-after"].isdecimal()


def test_what_a_failed_call_held_is_free_again(fleet: Fleet) -> None:
    for _ in range(3 * LIMIT // MAX_TOKENS // 10):
        assert ask(fleet.proxies[1], "broken", max_tokens=LIMIT - 100).status == 500


def test_usage_that_is_missing_counts_as_the_reserve_and_is_logged(fleet: Fleet) -> None:
    proxy = fleet.proxies[2]
    assert ask(proxy, "silent", max_tokens=LIMIT - 100).status == 200
    until(lambda: "all that was reserved counts as spent: model=silent missing=tokens" in proxy.log(), "the log line")
    assert ask(proxy, "silent", max_tokens=MAX_TOKENS + 100).status == 429


def test_usage_above_the_reserve_is_taken_and_counted(fleet: Fleet) -> None:
    assert ask(fleet.proxies[0], "over-1").status == 200
    reserve = MAX_TOKENS + tokens_of_prompt(fleet)
    over = fleet.witness("charged", "over-1") - reserve
    line = f'countless_count_total{{counter="llm_above_reserve{{measure=\\"tokens\\",model=\\"over-1\\"}}"}} {over}.0'
    until(lambda: line in lines_of_metrics(fleet), "the metric")


def test_usage_above_the_reserve_is_taken_if_the_caller_wants_no_log(fleet: Fleet) -> None:
    assert ask(fleet.proxies[0], "over-1-unseen", **{"no-log": True}).status == 200
    settled(fleet, "tokens/over-1-unseen", fleet.witness("charged", "over-1-unseen"))


def test_limit_that_a_caller_hides_is_reserved(fleet: Fleet) -> None:
    reply = ask(fleet.proxies[0], "refused", max_tokens=1, extra_body={"max_tokens": LIMIT})
    assert (reply.status, fleet.witness("calls", "refused")) == (429, 0)


def test_call_is_reserved_once_whatever_retries_and_fallbacks_it_has(fleet: Fleet) -> None:
    assert ask(fleet.proxies[0], "again", num_retries=2).status == 200
    settled(fleet, "tokens/again", fleet.witness("charged", "again"))
    for body in ({}, {"stream": True}):
        assert ask(fleet.proxies[1], "falls", **body).status == 200
    settled(fleet, "tokens/falls", fleet.witness("charged", "stands-in"))


def test_alias_has_the_budget_of_its_model(fleet: Fleet) -> None:
    assert ask(fleet.proxies[0], "nickname").status == 200
    settled(fleet, "tokens/named", fleet.witness("charged", "named"))


def test_image_is_charged_by_its_usage(fleet: Fleet) -> None:
    body = {"model": "image", "prompt": "a cat"}
    reply = fleet.proxies[0].request("POST", "/v1/images/generations", body, authorization=f"Bearer {KEY}")
    assert reply.status == 200, reply.text
    settled(fleet, "tokens/image", fleet.witness("charged", "image"))


def settled(fleet: Fleet, name: str, units: int) -> None:
    """Wait until exactly so many units are spent, and no others held."""

    def left(client: Client, units: int) -> bool:
        try:
            client.budget(name).reserve(units, TIMEOUT_S).settle(0)
        except LimitExceeded:
            return False
        return True

    with connect(fleet.server.url) as client:
        until(lambda: left(client, LIMIT - units) and not left(client, LIMIT - units + 1), f"{units} of {name}")


def lines_of_metrics(fleet: Fleet) -> list[str]:
    with closing(HTTPConnection(fleet.server.url.partition("//")[2], timeout=TIMEOUT_S)) as connection:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode().splitlines()


def tokens_of_prompt(fleet: Fleet) -> int:
    """As LiteLLM counts them: what a refusal names, less what may be generated."""
    reply = ask(fleet.proxies[0], "refused", max_tokens=10 * LIMIT)
    return int(reply.json["error"]["message"].split()[2]) - 10 * LIMIT


def test_stream_that_its_caller_drops_ends_the_call(fleet: Fleet) -> None:
    """The next stream, of another proxy, is in flight only when the first is not any more."""
    body = {"model": "slow", "messages": MESSAGES, "max_tokens": 1000, "stream": True}
    for proxy in (*fleet.proxies, *fleet.proxies):
        with closing(HTTPConnection(proxy.url.partition("//")[2], timeout=TIMEOUT_S)) as connection:
            headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}

            def admitted(connection: HTTPConnection = connection, headers: dict[str, str] = headers) -> Any:
                connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
                response = connection.getresponse()
                if response.status != 200:
                    response.read()
                    return None
                return response.readline()

            assert until(admitted, "a place").startswith(b"data: ")
    # What the streams had reserved and not used is left, too.
    until(lambda: ask(fleet.proxies[0], "slow", max_tokens=LIMIT - 2000).status == 200, "the units are free")


def test_stream_that_breaks_off_counts_as_what_was_sent(fleet: Fleet) -> None:
    for proxy in fleet.proxies:
        with suppress(HTTPException):  # how a proxy tells of it
            ask(proxy, "breaks", max_tokens=LIMIT - 100, stream=True)
        until(lambda: fleet.witness("calls", "breaks") == fleet.proxies.index(proxy) + 1, "it was called")  # noqa: B023
    until(lambda: ask(fleet.proxies[0], "breaks", max_tokens=LIMIT - 1000).status == 200, "the rest is free")
    assert fleet.budget("tokens/breaks")["used_upper"] > 0


def test_coordinator_that_is_frozen_is_not_waited_for(fleet: Fleet) -> None:
    fleet.server.process.send_signal(signal.SIGSTOP)
    try:
        replies = [ask(proxy, "frozen") for proxy in fleet.proxies]
    finally:
        fleet.server.process.send_signal(signal.SIGCONT)
    assert [reply.status for reply in replies] == [503] * 3
    assert {reply.headers["retry-after"] for reply in replies} == {"1"}
    assert fleet.witness("calls", "frozen") == 0
    for proxy in fleet.proxies:
        until(lambda: ask(proxy, "frozen").status == 200, "it answers again")  # noqa: B023


def test_killed_proxy_holds_nothing_and_what_it_held_counts_as_spent(fleet: Fleet) -> None:
    held = 5000
    body = {"model": "slow", "messages": MESSAGES, "max_tokens": held, "stream": True}
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    with closing(HTTPConnection(fleet.proxies[2].url.partition("//")[2], timeout=TIMEOUT_S)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        assert connection.getresponse().readline().startswith(b"data: ")
        fleet.proxies[2].kill()
    until(lambda: ask(fleet.proxies[0], "slow").status == 200, "it is in flight no more")
    fleet.proxies[2] = fleet.start(2)
    assert ask(fleet.proxies[2], "plain").status == 200  # it has opened its directory
    until(lambda: fleet.budget("tokens/slow")["used_lower"] >= held, "what was held counts as spent")
    assert fleet.budget("tokens/slow")["used_upper"] <= LIMIT


def test_budget_holds_while_proxies_and_the_coordinator_are_killed(fleet: Fleet) -> None:
    """Every tenth call of the model exceeds its reserve: by that, and no more, may it charge above the limit."""
    model = "over-10"
    statuses: Counter[int] = Counter()
    threads = [Thread(target=overload, args=(fleet, proxy, model, statuses)) for proxy in fleet.proxies * THREADS]
    for thread in threads:
        thread.start()
    until(lambda: fleet.witness("charged", model) > LIMIT // 5, "a fifth is spent")
    fleet.server.kill()
    fleet.proxies[0].kill()
    fleet.server.start()
    fleet.proxies[0] = fleet.start(0)
    until(lambda: fleet.witness("charged", model) > 2 * LIMIT // 5, "two fifths are spent")
    fleet.proxies[1].kill()
    fleet.proxies[1] = fleet.start(1)
    more = [Thread(target=overload, args=(fleet, proxy, model, statuses)) for proxy in fleet.proxies]
    for thread in more:
        thread.start()
    for thread in (*threads, *more):
        thread.join(5 * TIMEOUT_S)
        assert not thread.is_alive()
    charged, over = fleet.witness("charged", model), fleet.witness("over", model)
    assert charged - over <= LIMIT, (charged, over)
    assert statuses.keys() == {200, 429}, statuses
    # Some were refused because of what others held. What is left of that is spent now.
    until(lambda: ask(fleet.proxies[0], model).status == 429, "the budget is spent")
    reserve = MAX_TOKENS + tokens_of_prompt(fleet)
    until(lambda: fleet.budget(f"tokens/{model}")["used_lower"] > LIMIT - reserve, "no other request would fit")
    assert fleet.budget(f"tokens/{model}")["used_upper"] <= LIMIT


def overload(fleet: Fleet, proxy: Proxy, model: str, statuses: Counter[int]) -> None:
    """Ask, every second time for a stream, until the budget refuses or the proxy is gone."""
    for number in count():
        try:
            status = ask(proxy, model, stream=number % 2 == 1).status
        except (OSError, HTTPException):
            return
        if status == 503:  # the coordinator is away
            continue
        statuses[status] += 1
        if status == 429:
            return


MONEY = """
model_list:
  - model_name: cheap
    litellm_params: {model: openai/cheap, api_base: "%s/v1", api_key: none}
    model_info: {input_cost_per_token: 0.000001, output_cost_per_token: 0.000002}
  - model_name: priceless
    litellm_params: {model: openai/priceless, api_base: "%s/v1", api_key: none}
litellm_settings: {num_retries: 0, callbacks: countless.integrations.litellm.limits}
callback_settings:
  countless: {money: ["money/{model}"], max_tokens: 500}
general_settings: {master_key: %s}
"""


def test_money_is_reserved_and_settled_in_millionths(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(MONEY % (fleet.stub.url, fleet.stub.url, KEY))
    rule = {"name": "money/*", "limit": 2_000, "slack": 0.0, "per": "month"}
    fleet.server.reader.request("POST", "/api/v1/budgets", rule)
    with Proxy(tmp_path, tmp_path / "proxy.log", COUNTLESS_URL=fleet.server.url) as proxy:
        reply = ask(proxy, "priceless")
        assert (reply.status, "one with a price" in reply.text) == (400, True)
        assert ask(proxy, "cheap", max_tokens=None).status == 200  # reserves 1,000 and more; 505 are used
        until(lambda: ask(proxy, "cheap", max_tokens=700).status == 200, "the rest is free")  # at most 1,495
        until(lambda: ask(proxy, "cheap", max_tokens=500).status == 429, "the rest is too small")


def test_configuration_that_limits_nothing_does_not_start(fleet: Fleet, tmp_path: Path) -> None:
    config = CONFIG % (fleet.stub.url, KEY)
    (tmp_path / "config.yaml").write_text(config.replace("teams/{team}", "teams/{taem}"))
    with pytest.raises(AssertionError, match=r"callback_settings\.countless\.tokens = 'teams/\{taem\}' is not allowed"):
        Proxy(tmp_path, tmp_path / "proxy.log", COUNTLESS_URL=fleet.server.url)
