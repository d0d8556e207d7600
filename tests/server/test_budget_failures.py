"""What happens to a budget when things fail, with real processes: the table of design/proofs/budgets.md, section 9."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from countless.server.settings import STATE_FILE
from countless.server.storage.backup import end_restore
from support.commands import run_command
from support.proxy import HEALTHY, FaultProfile, Proxy
from support.service import TIMEOUT_S, Server, environment, python, until
from support.taker import LIMIT, RULE, StartTaker, Taker, usage

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]

QUICK = """
from countless.server import settings
settings.RECONNECT_S = 6 - 12  # a restore waits for 6 s: longer than clients pause, after a restart that takes 1 s
from countless.cli.main import main
main()
"""


def test_site_killed_with_a_state_dir_costs_what_it_spent(tokens: Server, start: StartTaker, tmp_path: Path) -> None:
    first = start(tokens, "first", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    assert first.take(30) == "allowed"
    assert first.take(1) == "allowed"
    first.kill()
    second = start(tokens, "second", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    until(lambda: second.take(969) == "allowed", "what the killed site left")
    assert second.take(1) == "exhausted"
    assert (usage(tokens)["used_upper"], usage(tokens)["leaked"]) == (LIMIT, 0)


def test_site_killed_without_a_state_dir_costs_what_it_was_granted(tokens: Server, start: StartTaker) -> None:
    first = start(tokens, "first")
    assert first.take(30) == "allowed"
    assert first.take(1) == "allowed"
    granted = first.taken + first.remaining
    first.kill()
    second = start(tokens, "first")  # the coordinator retires the incarnation that was killed
    assert second.take_all() == "exhausted"
    assert second.taken == LIMIT - granted
    assert usage(tokens)["leaked"] in range(granted - first.taken, granted + 1)
    assert usage(tokens)["used_upper"] == LIMIT


def test_site_killed_while_it_was_not_lent_units_costs_what_it_spent(tokens: Server, start: StartTaker) -> None:
    first, second = start(tokens, "first"), start(tokens, "second")
    assert first.take(900) == "allowed"  # more than a share
    first.kill()
    assert second.take_all() == "exhausted"
    assert second.taken == LIMIT - 900


@pytest.mark.parametrize("direction", ["up", "down"])
def test_lost_message_loses_no_unit(direction: str, tokens: Server, start: StartTaker) -> None:
    """With the Ask that wants units, or with the Quota that grants them, the connection is lost."""
    with Proxy(tokens.url, seed=1) as proxy:
        first, second = start(proxy, "first"), start(tokens, "second")
        assert first.take(30) == "allowed"
        proxy.set_profile(FaultProfile(lost=direction))
        first.start_taking(900, TIMEOUT_S)
        until(lambda: proxy.faults["lost"] and (direction == "up" or usage(tokens)["used_upper"] >= 930), "the loss")
        proxy.set_profile(FaultProfile(partitioned=True))
        proxy.set_profile(HEALTHY)
        assert first.end_taking(900) == "allowed"
        assert (second.take(71), second.take(70), first.take(1)) == ("exhausted", "allowed", "exhausted")


def test_site_that_was_cut_off_while_its_budget_was_deleted_and_made_again_begins_anew(
    tokens: Server, start: StartTaker
) -> None:
    with Proxy(tokens.url, seed=1) as proxy:
        first, second = start(proxy, "first"), start(tokens, "second")
        assert first.take(30) == "allowed"
        proxy.set_profile(FaultProfile(partitioned=True))
        tokens.reader.request("DELETE", "/api/v1/budgets/tokens")
        tokens.reader.request("POST", "/api/v1/budgets", RULE)
        proxy.set_profile(HEALTHY)
        assert first.take(900) == "allowed"
        assert (second.take(101), second.take(100), first.take(1)) == ("exhausted", "allowed", "exhausted")
    assert usage(tokens)["used_upper"] == LIMIT


def test_site_that_is_cut_off_spends_what_it_was_granted_and_others_the_rest(tokens: Server, start: StartTaker) -> None:
    with Proxy(tokens.url, seed=1) as proxy:
        first, second = start(proxy, "first"), start(tokens, "second")
        assert first.take(30) == "allowed"
        proxy.set_profile(FaultProfile(partitioned=True))
        granted = first.taken + first.remaining
        until(lambda: first.take_all(wait=0) == "unreachable", "the loss of the connection")
        assert first.taken == granted
        assert second.take_all() == "exhausted"
        assert second.taken == LIMIT - granted
        proxy.set_profile(HEALTHY)
        assert first.take(1) == "exhausted"
        assert usage(tokens)["used_lower"] == usage(tokens)["used_upper"] == LIMIT


def test_overdraft_of_a_site_that_is_cut_off_is_charged_when_it_is_back(tokens: Server, start: StartTaker) -> None:
    tokens.reader.request("PATCH", "/api/v1/budgets/tokens", {"on_unreachable": "overdraft"})
    with Proxy(tokens.url, seed=1) as proxy:
        first = start(proxy, "first")
        assert first.take(30) == "allowed"
        proxy.set_profile(FaultProfile(partitioned=True))
        overdraft = LIMIT + 200 - first.taken
        until(lambda: first.take(overdraft, wait=0) == "allowed", "the loss of the connection")
        proxy.set_profile(HEALTHY)
        until(lambda: usage(tokens)["used_lower"] == LIMIT + 200, "the report")
        assert (usage(tokens)["used_upper"], usage(tokens)["state"]) == (LIMIT + 200, "lowering")
        assert first.take(1) == start(tokens, "second").take(1) == "exhausted"


def test_request_of_a_site_that_is_cut_off_waits_until_it_is_back(tokens: Server, start: StartTaker) -> None:
    tokens.reader.request("PATCH", "/api/v1/budgets/tokens", {"on_unreachable": "wait"})
    with Proxy(tokens.url, seed=1) as proxy:
        first = start(proxy, "first")
        assert first.take(30) == "allowed"
        proxy.set_profile(FaultProfile(partitioned=True))
        until(lambda: first.take(900, wait=0) == "unreachable", "the loss of the connection")
        first.start_taking(900, wait=1)
        assert start(tokens, "second").take(1) == "allowed"
        proxy.set_profile(HEALTHY)
        ended = first.end_taking(900)
        assert ended in ("allowed", "starved")  # units later than a second after it was back: a busy machine
        until(lambda: ended == "allowed" or first.take(900, wait=1) == "allowed", "units")


HOLDING = """
import countless
slots = countless.connect(site="exporter").budget("exports")
slot = slots.acquire(2, wait=90)
print("ready", flush=True)
input()
"""


@pytest.mark.parametrize("durable", [True, False])
def test_slots_of_a_killed_process_are_free_when_it_is_started_again(
    server: Server, durable: bool, tmp_path: Path
) -> None:
    """Handed in by the next process with the `state_dir`; freed by the coordinator if the rule is `on_loss: free`."""
    rule = {"name": "exports", "limit": 3, "slack": 0, "kind": "in_flight", "on_loss": "charge" if durable else "free"}
    server.reader.request("POST", "/api/v1/budgets", rule)
    variables = {"COUNTLESS_CLIENT_STATE_DIR": str(tmp_path)} if durable else {}
    for _ in range(3):
        with python(HOLDING, server.url, **variables) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.kill()
    server.reader.request("DELETE", "/api/v1/budgets/exports")


EXPIRING = """
import countless
from support.service import until

client = countless.connect(site="gateway")
hold = client.budget("tokens").reserve(400, wait=90, expires_in=float(input()))
if hold.expires_in is not None:
    until(lambda: client.expired_holds, "the expiry")
    try:
        hold.settle(1)
    except countless.errors.HoldExpired as error:
        print(error, flush=True)
print("ready", flush=True)
input()
"""


@pytest.mark.parametrize("expires_in", ["0.05", "inf"])
def test_hold_that_is_not_settled_costs_all_its_units(expires_in: str, tokens: Server, start: StartTaker) -> None:
    path = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    with python(EXPIRING, tokens.url, PYTHONPATH=path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(expires_in, file=process.stdin, flush=True)
        if expires_in != "inf":
            assert "the hold of 400 units of budget 'tokens' has expired" in process.stdout.readline()
        assert process.stdout.readline() == "ready\n"
        second = start(tokens, "second")
        assert (second.take(601), second.take(600), second.take(1)) == ("exhausted", "allowed", "exhausted")
        process.kill()


def test_killed_coordinator_stops_no_site_and_grants_nothing_twice(tokens: Server, start: StartTaker) -> None:
    first, second = start(tokens, "first"), start(tokens, "second")
    for site in (first, second):
        assert site.take(30) == "allowed"
        until(lambda site=site: site.take(1) and site.remaining > 5, "a share that is not spent")  # type: ignore[misc]
    tokens.kill()
    for site in (first, second):
        while site.remaining:
            assert site.take(1, wait=0) == "allowed"
    tokens.start()
    assert first.take_all() == second.take_all() == "exhausted"
    assert first.taken + second.taken == LIMIT
    for site in (first, second):
        site.close()
    assert usage(tokens)["used_lower"] == usage(tokens)["used_upper"] == LIMIT


def test_exhausted_budget_stays_exhausted_when_coordinator_and_a_site_are_killed_together(
    server: Server, start: StartTaker, tmp_path: Path
) -> None:
    """At the site that lives, and at the killed one, which starts again before the coordinator."""
    month = {"per": "month", "anchor": (datetime.now(UTC).day + 13) % 28 + 1}  # it began about two weeks ago
    server.reader.request("POST", "/api/v1/budgets", {**RULE, **month})
    first, second = start(server, "first"), start(server, "second", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    assert (first.take(900), second.take(100), second.take(1), first.take(1)) == (*["allowed"] * 2, *["exhausted"] * 2)
    server.kill()
    second.kill()
    assert first.take(1, wait=0) == "exhausted"
    second = start(server, "second", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    until(lambda: second.take(1, wait=0) == "exhausted", "what the killed site knew")
    server.start()
    assert first.take(1) == second.take(1) == "exhausted"
    until(lambda: usage(server)["leaked"] == 0, "what the killed site had spent")
    assert usage(server)["used_lower"] == LIMIT
    server.reader.request("DELETE", "/api/v1/budgets/tokens")


class QuickServer(Server):
    """After a restore it waits for six seconds only."""

    def _launch(self, arguments: list[str]) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", QUICK, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())


@pytest.mark.parametrize("marked", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_coordinator_restored_from_an_older_copy(marked: bool, tmp_path: Path) -> None:
    """With a copy that does not say that it is one the limit is exceeded, so the test can fail."""
    sites: list[Taker] = []
    state = str(tmp_path / "state")
    with QuickServer(tmp_path / "state", "--silent-after", "1s") as server:
        server.reader.request("POST", "/api/v1/budgets", RULE)
        try:
            sites += [Taker(server.url, name) for name in ("first", "second")]
            assert [site.take(30) for site in sites] == ["allowed", "allowed"]
            assert run_command("backup", str(tmp_path / "copy"), "--state-dir", state).returncode == 0  # while it runs
            sites.append(Taker(server.url, "third"))  # the copy does not know it
            for site in sites:
                until(lambda site=site: site.take(250) == "allowed", "a request")  # type: ignore[misc]
            server.kill()
            assert run_command("restore", str(tmp_path / "copy"), "--state-dir", state).returncode == 0
            if not marked:
                end_restore(tmp_path / "state" / STATE_FILE)
            server.start()
            if marked:
                until(lambda: [each["state"] for each in server.sites()] == ["connected"] * 3, "all sites")
                assert usage(server)["state"] == "restoring"
            sites.append(Taker(server.url, "fourth"))
            until(lambda: sites[-1].take_all() == "exhausted", "the last unit")
            taken = sum(site.taken for site in sites)
            assert taken == LIMIT if marked else taken > LIMIT
        finally:
            for site in sites:
                site.kill()
