"""Budgets in a shell: `countless budget` and `countless take`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.commands import run_command
from support.service import Server, environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("state")) as server:
        yield server


def run(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, COUNTLESS_URL=url)


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


def test_rolling_budget_is_created_and_spent(server: Server) -> None:
    made = run("budget", "create", "logins", "--limit", "5", "--rolling", "1m", "--slack", "0", url=server.url)
    assert made.stdout == "logins: 0 to 0 of 5 in every 60 s taken (0 leaked; open)\n"
    assert run("take", "logins", "5", url=server.url).returncode == 0
    refused = run("take", "logins", url=server.url)
    assert (refused.returncode, refused.stderr) == (1, "countless: 1 of logins: exhausted\n")
    no_unit = run("budget", "create", "other", "--limit", "5", "--rolling", "15", url=server.url)
    assert (no_unit.returncode, "rolling must be a duration with its unit" in no_unit.stderr) == (2, True)
    wrong = run("budget", "create", "other", "--limit", "5", "--rolling", "1m", "--per", "day", url=server.url)
    assert (wrong.returncode, "rolling can't be used with per" in wrong.stderr) == (2, True)


@pytest.mark.soak
def test_template_limits_each_name_on_its_own(server: Server) -> None:
    command = "budget create keys/* --limit 2 --per month --slack 0 --max-names 3"
    made = run(*command.split(), url=server.url)
    assert made.stdout == "keys/*: 2 per month for each name (0 of at most 3 names in use)\n"
    for key in "ab":
        assert [run("take", f"keys/{key}", url=server.url).returncode for _ in range(3)] == [0, 0, 1]
    listed = run("budget", "list", url=server.url).stdout.splitlines()
    assert [line.split(" (")[0] for line in listed if line.startswith("keys/")] == [
        "keys/*: 2 per month for each name",
        "keys/a: 2 to 2 of 2 per month spent",
        "keys/b: 2 to 2 of 2 per month spent",
    ]
    run("take", "keys/c", url=server.url)
    refused = run("take", "keys/d", url=server.url)
    assert (refused.returncode, "(max_names)" in refused.stderr) == (2, True)
    assert run("budget", "delete", "keys/*", url=server.url).returncode == 0
    assert "keys/" not in run("budget", "list", url=server.url).stdout


def test_limit_on_what_runs_is_created_and_cannot_be_spent(server: Server) -> None:
    command = "budget create exports --limit 3 --kind in_flight --on-loss free --on-unreachable wait --json"
    status = json.loads(run(*command.split(), url=server.url).stdout)
    assert (status["kind"], status["on_loss"], status["on_unreachable"]) == ("in_flight", "free", "wait")
    assert run("budget", "get", "exports", url=server.url).stdout == "exports: 0 to 0 of 3 in use (0 leaked; open)\n"
    taken = run("take", "exports", url=server.url)
    assert (taken.returncode, "use acquire" in taken.stderr) == (2, True)
    wrong = run("budget", "set", "exports", "--on-unreachable", "guess", url=server.url)
    assert (wrong.returncode, "one of: refuse, wait, overdraft" in wrong.stderr) == (2, True)


def test_budget_with_periods_is_created_spent_watched_and_reset(server: Server) -> None:
    command = "budget create acme/monthly --limit 50M --per month --tz Europe/Berlin --anchor 5 --slack 1%"
    made = run(*command.split(), "--json", url=server.url)
    status = json.loads(made.stdout)
    assert (status["limit"], status["slack"], status["per"]) == (50_000_000, 0.01, "month")
    assert (status["tz"], status["anchor"]) == ("Europe/Berlin", 5)
    assert run("take", "acme/monthly", "30M", url=server.url).returncode == 0
    refused = run("take", "acme/monthly", "30000000", url=server.url)
    assert refused.returncode == 1
    assert "countless: 30000000 of acme/monthly: exhausted; more is available in " in refused.stderr
    with watching("acme/monthly", url=server.url) as lines:
        resets = status["resets_at"]
        spent = "30,000,000 to 30,000,000 of 50,000,000 per month spent"
        assert next(lines) == f"acme/monthly: {spent} (0 leaked; open; resets at {resets})\n"
        assert run("budget", "reset", "acme/monthly", url=server.url).returncode == 0
        assert next(lines).startswith("acme/monthly: 0 to 0 of 50,000,000 per month spent")


@contextmanager
def watching(name: str, url: str) -> Iterator[Iterator[str]]:
    """What `countless budget watch` prints."""
    command = [sys.executable, "-m", "countless.cli.main", "budget", "watch", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(COUNTLESS_URL=url)) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "b", "--limit", "0"], "limit must be an integer from 1 to 2**62"),
        (["create", "b", "--limit", "1.5"], "limit must be a whole number of units, such as 1000, 50M or 1.5k"),
        (["create", "b", "--limit", "5", "--slack", "a little"], "slack must be a share such as 1% or 0.01"),
        (["create", "keys/", "--limit", "5"], "name must be a name with a key behind its last slash"),
        (["create", "b", "--limit", "5", "--per", "week"], "per must be one of: minute, hour, day, month"),
        (["create", "b", "--limit", "5", "--per", "day", "--tz", "Nowhere"], "tz must be the name of a time zone"),
        (["create", "b", "--limit", "5", "--per", "day", "--anchor", "24"], "anchor must be an integer from 0 to 23"),
        (["create", "b", "--limit", "5", "--tz", "Europe/Berlin"], "tz can't be used for a budget without periods"),
        (["reset", "b"], "there is no budget 'b'"),
        (["watch", "b"], "there is no budget 'b'"),
        (["create", "b"], "missing option '--limit'"),
        (["create", "b", "--limit", "5", "--slack", "1"], "slack must be a number"),
        (["get", "b"], "there is no budget 'b'"),
        (["get"], "missing argument 'name'"),
        (["get", "b", "--limit", "5"], "no such option: --limit (see: countless budget get --help)"),
        (["set", "b"], "nothing to change: give --limit"),
        (["burn", "b"], "no such command 'burn'"),
    ],
)
def test_invalid_request_exits_2_and_creates_nothing(server: Server, arguments: list[str], message: str) -> None:
    result = run("budget", *arguments, url=server.url)
    assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    assert "b" not in [each["name"] for each in server.reader.request("GET", "/api/v1/budgets")["budgets"]]


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        ("-1", "n must be an integer from 1 to 2**62"),
        ("0", "n must be an integer from 1 to 2**62"),
        ("1.5", "n must be a whole number of units, such as 1000, 50M or 1.5k"),
        ("many", "n must be a whole number of units"),
    ],
)
def test_take_of_a_wrong_amount_exits_2_and_names_the_range(amount: str, message: str) -> None:
    result = run("take", "acme/tokens", amount, url="http://127.0.0.1:9")
    assert (result.returncode, message in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "m", "-1"], "n = -1 is not allowed: n must be an integer of at least 1: counts only grow"),
        (["add", "m", "0"], "n = 0 is not allowed"),
        (["add", "m", "-1.5"], "invalid value for 'n': Input should be a valid integer"),
        (["quantile", "m", "-1"], "q = '-1' is not allowed: q must be a quantile from p0 to p100"),
        (["add", "m", "--tiemout", "3"], "no such option: --tiemout"),
        (["take", "m", "--tiemout", "3"], "no such option: --tiemout"),
    ],
)
def test_number_below_zero_is_a_wrong_number_and_no_option(words: list[str], message: str) -> None:
    result = run(*words, url="http://127.0.0.1:9")
    assert (result.returncode, message in result.stderr) == (2, True), result.stderr


def test_take_without_a_coordinator_exits_75() -> None:
    result = run("take", "acme/tokens", "--timeout", "0.1", url="http://127.0.0.1:9")
    assert (result.returncode, "unreachable" in result.stderr) == (75, True), result.stderr
