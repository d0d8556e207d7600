"""Three real Envoys with an agent each, a coordinator, and an origin that counts what reaches it."""

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from real_libraries.envoys import PYTHON, SOURCES, Envoy, GatewayAgent, Origin
from support.service import TIMEOUT_S, Server, environment, until

LIMIT = 3_000
THREADS = 4  # for each Envoy
RULES = """
[[envoy.limits]]
domain = "edge"
descriptor = ["path"]
budget = "paths/{path}"
wait = 60

[[envoy.limits]]
domain = "edge"
descriptor = ["generic_key=weighed", "x-key"]
secret = ["x-key"]
budget = "keys/{x_key}"
policy = "key"
wait = 60

[[envoy.limits]]
domain = "edge"
descriptor = ["fail", "fail_open"]
budget = "frozen/open"
on_unreachable = "allow"
wait = 0

[[envoy.limits]]
domain = "edge"
descriptor = ["fail", "fail_closed"]
budget = "frozen/closed"
wait = 0
"""


def header(name: str, key: str) -> dict[str, Any]:
    return {"request_headers": {"header_name": name, "descriptor_key": key, "skip_if_absent": False}}


ACTIONS: list[Any] = [
    {"actions": [{"header_value_match": {"descriptor_value": "x", "headers": [{"name": "x-other"}]}}]},
    {"actions": [header("x-path", "path")]},
    {
        "actions": [{"generic_key": {"descriptor_value": "weighed"}}, header("x-key", "x-key")],
        "hits_addend": {"number": 3},
    },
    {"actions": [header("x-fail", "fail"), header("x-open", "fail_open")]},
    {"actions": [header("x-fail", "fail"), header("x-closed", "fail_closed")]},
]


class Gateways:
    def __init__(self, server: Server, origin: Origin, folder: Path, stack: ExitStack) -> None:
        self.server, self.origin, self._folder, self._stack = server, origin, folder, stack
        self.agents = [self.start_agent(number, "127.0.0.1:0") for number in range(3)]
        self.envoys = [
            stack.enter_context(Envoy(folder / f"envoy-{number}", origin.address, agent.listen, ACTIONS))
            for number, agent in enumerate(self.agents)
        ]

    def start_agent(self, number: int, listen: str) -> GatewayAgent:
        agent = GatewayAgent(self.server.url, self._folder / f"agent-{number}", RULES, listen)
        return self._stack.enter_context(agent)

    def kill_agent(self, number: int) -> None:
        """Another one takes its place, with the same directory."""
        self.agents[number].kill()
        self.agents[number] = self.start_agent(number, self.agents[number].listen)


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    with ExitStack() as stack:
        server = stack.enter_context(Server(tmp_path_factory.mktemp("state"), "--silent-after", "1s"))
        for name, limit in (("paths/*", LIMIT), ("keys/*", 6), ("frozen/*", 1000)):
            rule = {"name": name, "limit": limit, "slack": 0.0, "per": "month"}
            server.reader.request("POST", "/api/v1/budgets", rule)
        yield Gateways(server, stack.enter_context(Origin()), tmp_path_factory.mktemp("gateways"), stack)


def test_hits_are_weighed_and_the_answer_has_the_limit(gateways: Gateways) -> None:
    replies = [envoy.get("/weighed", x_key="secret") for envoy in gateways.envoys]
    assert [status for status, _, _ in replies] == [200, 200, 429]
    _, fields, _ = replies[0]
    assert fields["ratelimit"].startswith('"key";r=')
    assert fields["ratelimit-policy"].startswith('"key";q=6;w=')
    assert (fields["x-ratelimit-limit"].split(",")[0], int(fields["x-ratelimit-reset"]) > 0) == ("6", True)
    _, fields, body = replies[2]
    assert (fields["content-type"], int(fields["retry-after"]) > 0) == ("application/problem+json", True)
    assert json.loads(body)["violated-policies"] == ["key"]
    assert gateways.origin.counts["/weighed"] == 2


def test_unknown_descriptor_passes_and_is_counted(gateways: Gateways) -> None:
    before = gateways.agents[1].metrics()["countless_envoy_unknown_total"]
    assert [gateways.envoys[1].get("/unknown", x_other="1")[0] for _ in range(3)] == [200] * 3
    assert gateways.agents[1].metrics()["countless_envoy_unknown_total"] == before + 3
    assert "descriptor without a limit: domain='edge' descriptors=[['header_match']]" in gateways.agents[1].log()


def test_limit_holds_while_agents_and_the_coordinator_are_killed(gateways: Gateways) -> None:
    statuses: Counter[int] = Counter()
    threads = [Thread(target=overload, args=(envoy, statuses)) for envoy in gateways.envoys * THREADS]
    for thread in threads:
        thread.start()
    until(lambda: witness(gateways) > LIMIT // 5, "a fifth is spent")
    gateways.kill_agent(0)
    until(lambda: witness(gateways) > 2 * LIMIT // 5, "two fifths are spent")
    gateways.server.kill()
    gateways.kill_agent(1)
    gateways.server.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert witness(gateways) <= LIMIT
    assert witness(gateways) == statuses[200]  # nothing else has answered
    assert {200, 429} <= statuses.keys() <= {200, 429, 500}, statuses  # 500: Envoy's own, without an agent
    assert budget(gateways, "paths/load")["used_upper"] <= LIMIT
    # No agent holds back what it does not use.
    until(lambda: {envoy.get("/load", x_path="load")[0] for envoy in gateways.envoys} == {429}, "all is spent")
    until(lambda: budget(gateways, "paths/load")["used_lower"] == LIMIT, "all is spent")
    assert LIMIT - THREADS * 3 * 3 <= witness(gateways) <= LIMIT  # a killed agent has spent what it did not answer


def overload(envoy: Envoy, statuses: Counter[int]) -> None:
    """Ask until the budget refuses."""
    while True:
        try:
            status, _, body = envoy.get("/load", x_path="load")
        except (OSError, HTTPException):
            continue
        statuses[status] += 1
        if status == 429 and b"quota exceeded" in body:
            return


def witness(gateways: Gateways) -> int:
    return gateways.origin.counts.get("/load", 0)


def budget(gateways: Gateways, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = gateways.server.reader.request("GET", f"/api/v1/budgets/{name}")
    return answer


def test_rule_says_what_happens_while_the_coordinator_is_frozen(gateways: Gateways) -> None:
    """Of these budgets no agent holds a unit."""
    gateways.server.process.send_signal(signal.SIGSTOP)
    try:
        answers = [gateways.envoys[2].get("/frozen", x_fail="1", **{field: "1"}) for field in ("x_open", "x_closed")]
    finally:
        gateways.server.process.send_signal(signal.SIGCONT)
    assert [status for status, _, _ in answers] == [200, 429]
    assert b"quota temporarily unavailable" in answers[1][2]


def test_example_of_the_page(gateways: Gateways, tmp_path: Path) -> None:
    text = (SOURCES.parent / "docs/guides/envoy.md").read_text(encoding="utf-8")
    limits = text.partition("```toml\n")[2].partition("```")[0].partition("[[envoy.limits]]")
    with GatewayAgent(gateways.server.url, tmp_path / "agent", limits[1] + limits[2]) as agent:
        example = text.partition("```yaml\n")[2].partition("```")[0].replace("2688", agent.listen.partition(":")[2])
        with Envoy(tmp_path / "envoy", gateways.origin.address, page=yaml.safe_load(example)) as envoy:
            until(lambda: b"quota exceeded" in envoy.get("/page", x_api_key="page")[2], "all is spent")
    assert 0 < gateways.origin.counts["/page"] <= 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[envoy]\n[[envoy.limits]]\ndomain = 'edge'\ndescriptor = ['path']\n", "missing required field `budget`"),
        ("[envoy]\nlisten = 'localhost'\n" + RULES, "envoy.listen = 'localhost' is not allowed"),
        ("[envoy]\nlisten = '0.0.0.0:0'\n" + RULES, "envoy.listen = '0.0.0.0' is not allowed"),
        ("[envoy]\nlisten = 'unix:/nowhere/socket'\n" + RULES, "cannot listen on grpc://unix:/nowhere/socket"),
        ("[envoy]\n" + RULES.replace("{path}", "{way}"), "envoy.limits[0].budget = 'paths/{way}' is not allowed"),
    ],
)
def test_file_that_is_wrong_ends_the_agent(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "agent.toml").write_text(text)
    command = [PYTHON, "-m", "countless.cli.main", "agent", "--statsd-port", "0", "--http-port", "0"]
    result = subprocess.run(
        [*command, "--config", str(tmp_path / "agent.toml")],
        env=environment(PYTHONPATH=str(SOURCES)), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


def test_two_agents_do_not_share_a_port(gateways: Gateways, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=f"cannot listen on grpc://{gateways.agents[0].listen}"):
        GatewayAgent(gateways.server.url, tmp_path, RULES, gateways.agents[0].listen)


def test_agent_answers_on_a_unix_socket_until_it_is_stopped(gateways: Gateways, tmp_path: Path) -> None:
    agent = GatewayAgent(gateways.server.url, tmp_path, RULES, f"unix:{tmp_path}/envoy")
    with agent:
        assert (tmp_path / "envoy").stat().st_mode & 0o777 == 0o666
        command = [PYTHON, str(Path(__file__).parent / "programs/ask_agent.py"), agent.listen, "unix", "", "unix"]
        answers = subprocess.run(
            command, env=environment(PYTHONPATH=str(SOURCES)), capture_output=True, text=True, timeout=TIMEOUT_S,
            check=True,
        )  # fmt: skip
        assert answers.stdout.split() == ["1", "2", "1"]  # a path without characters makes no name
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(TIMEOUT_S) == 0, agent.log()
    until(lambda: budget(gateways, "paths/unix")["used_upper"] == 2, "it has handed in the rest")
