"""Budgets in a shell: `countless budget` and `countless take`."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.service import Server, environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        yield server


def run(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "countless.cli.main", *arguments]
    variables = environment(COUNTLESS_URL=url)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=variables)


def test_budget_is_created_spent_raised_and_deleted(server: Server) -> None:
    made = run("budget", "create", "acme/tokens", "--limit", "10", "--slack", "0", url=server.url)
    assert made.stdout == "acme/tokens: 0 to 0 of 10 spent (0 leaked; open)\n"
    assert run("take", "acme/tokens", "7", url=server.url).returncode == 0
    refused = run("take", "acme/tokens", "4", url=server.url)
    assert (refused.returncode, refused.stderr) == (1, "countless: 4 of acme/tokens: exhausted\n")
    assert run("budget", "set", "acme/tokens", "--limit", "11", url=server.url).returncode == 0
    assert run("take", "acme/tokens", "4", url=server.url).returncode == 0
    (listed,) = json.loads(run("budget", "list", "--json", url=server.url).stdout)
    assert (listed["name"], listed["used_lower"], listed["used_upper"]) == ("acme/tokens", 11, 11)
    assert run("budget", "get", "acme/tokens", url=server.url).stdout.startswith("acme/tokens: 11 to 11 of 11 spent")
    assert run("budget", "delete", "acme/tokens", url=server.url).returncode == 0
    unknown = run("take", "acme/tokens", url=server.url)
    assert (unknown.returncode, "there is no budget 'acme/tokens'" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "b", "--limit", "0"], "limit must be an integer from 1 to 2**62"),
        (["create", "b"], "limit must be given with create"),
        (["create", "b", "--limit", "5", "--slack", "1"], "slack must be a number"),
        (["get", "b"], "there is no budget 'b'"),
        (["get"], "name must be given"),
        (["get", "b", "--limit", "5"], "limit must be given with create and set only"),
        (["burn", "b"], "action must be one of: create, get, list, set, delete"),
    ],
)
def test_invalid_request_exits_2_and_creates_nothing(server: Server, arguments: list[str], message: str) -> None:
    result = run("budget", *arguments, url=server.url)
    assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    assert "b" not in [each["name"] for each in server.reader.request("GET", "/api/v1/budgets")["budgets"]]


def test_take_without_a_coordinator_exits_75() -> None:
    result = run("take", "acme/tokens", "--wait", "0.1", url="http://127.0.0.1:9")
    assert (result.returncode, "unreachable" in result.stderr) == (75, True), result.stderr
