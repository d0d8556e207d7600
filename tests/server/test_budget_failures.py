"""What happens to a budget when things fail: one test with real processes for each row that concerns clients.

| event                              | what happens                                                                    |
|------------------------------------|---------------------------------------------------------------------------------|
| a site is killed, with `state_dir` | the next process hands in what it spent and held; the rest is free again        |
| a site is killed, without          | all that it was granted stays charged, and is shown as leaked                   |
| a site is cut off                  | it spends what it was granted, then it is unreachable; others spend the rest    |
| ... and its rule is `overdraft`    | it goes on, and the coordinator charges that when the site is back              |
| ... and its rule is `wait`         | its requests wait until it is back                                              |
| a recalled site does not answer    | what it was granted counts as spent until it is back; others go on              |
| the coordinator is killed          | sites spend what they were granted; after the restart nothing is granted twice  |
| ... and is restored from a backup  | nothing is granted before all sites have told the rest                          |
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from countless.server.settings import STATE_FILE
from countless.server.storage.backup import end_restore
from support.commands import run_command
from support.proxy import HEALTHY, FaultProfile, Proxy
from support.service import TIMEOUT_S, Server, environment, python, until

pytestmark = pytest.mark.slow

LIMIT = 1000
RULE = {"name": "tokens", "limit": LIMIT, "slack": 0}
SITE = """
import countless, os, sys

client = countless.connect(site=os.environ["SITE"])
budget = client.budget("tokens")
for line in sys.stdin:
    n, wait = line.split()
    print(budget.take(int(n), wait=float(wait)).reason, budget.remaining, flush=True)
client.close(90)
"""
QUICK = """
from countless.server import settings
settings.RECONNECT_S = 6 - 12  # a restore waits for 6 s: longer than clients pause, after a restart that takes 1 s
from countless.cli.main import main
main()
"""


class Site:
    """A process that takes what it is told to take."""

    def __init__(self, url: str, name: str, **variables: str) -> None:
        self.process = python(SITE, url, SITE=name, **variables)
        self.remaining = 0  # after the last request
        self.taken = 0

    def take(self, n: int, wait: float = TIMEOUT_S) -> str:
        self.start_taking(n, wait)
        return self.end_taking(n)

    def start_taking(self, n: int, wait: float) -> None:
        assert self.process.stdin is not None
        print(n, wait, file=self.process.stdin, flush=True)

    def end_taking(self, n: int) -> str:
        assert self.process.stdout is not None
        reason, remaining = self.process.stdout.readline().split()
        self.remaining = int(remaining)
        self.taken += n if reason == "allowed" else 0
        return reason

    def take_all(self, wait: float = TIMEOUT_S) -> str:
        """One by one, until one is refused."""
        while (reason := self.take(1, wait)) == "allowed":
            pass
        return reason

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT_S)

    def close(self) -> None:
        self.process.communicate(timeout=TIMEOUT_S)


Start = Callable[..., Site]


@pytest.fixture
def tokens(server: Server) -> Iterator[Server]:
    server.reader.request("POST", "/api/v1/budgets", RULE)
    yield server
    server.reader.request("DELETE", "/api/v1/budgets/tokens")


@pytest.fixture
def start(tokens: Server) -> Iterator[Start]:
    """Starts sites, and kills them at the end of the test."""
    sites: list[Site] = []

    def start(name: str, url: str = tokens.url, **variables: str) -> Site:
        sites.append(Site(url, name, **variables))
        return sites[-1]

    yield start
    for site in sites:
        site.process.send_signal(signal.SIGCONT)
        site.kill()


def status(server: Server) -> Any:
    return server.reader.request("GET", "/api/v1/budgets/tokens")


def test_site_killed_with_a_state_dir_costs_what_it_spent(tokens: Server, start: Start, tmp_path: Path) -> None:
    first = start("first", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    assert first.take(30) == "allowed"
    assert first.take(1) == "allowed"
    first.kill()
    second = start("second", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    until(lambda: second.take(969) == "allowed", "what the killed site left")
    assert second.take(1) == "exhausted"
    assert (status(tokens)["used_upper"], status(tokens)["leaked"]) == (LIMIT, 0)


def test_site_killed_without_a_state_dir_costs_what_it_was_granted(tokens: Server, start: Start) -> None:
    first = start("first")
    assert first.take(30) == "allowed"
    assert first.take(1) == "allowed"
    granted = first.taken + first.remaining
    first.kill()
    second = start("first")  # the coordinator retires the incarnation that was killed
    assert second.take_all() == "exhausted"
    assert second.taken == LIMIT - granted
    assert status(tokens)["leaked"] in range(granted - first.taken, granted + 1)
    assert status(tokens)["used_upper"] == LIMIT


def test_site_that_is_cut_off_spends_what_it_was_granted_and_others_the_rest(tokens: Server, start: Start) -> None:
    with Proxy(tokens.url, seed=1) as proxy:
        first, second = start("first", proxy.url), start("second")
        assert first.take(30) == "allowed"
        proxy.set_profile(FaultProfile(partitioned=True))
        granted = first.taken + first.remaining
        until(lambda: first.take_all(wait=0) == "unreachable", "the loss of the connection")
        assert first.taken == granted
        assert second.take_all() == "exhausted"
        assert second.taken == LIMIT - granted
        proxy.set_profile(HEALTHY)
        assert first.take(1) == "exhausted"
        assert status(tokens)["used_lower"] == status(tokens)["used_upper"] == LIMIT


def test_overdraft_of_a_site_that_is_cut_off_is_charged_when_it_is_back(tokens: Server, start: Start) -> None:
    tokens.reader.request("PATCH", "/api/v1/budgets/tokens", {"on_unreachable": "overdraft"})
    with Proxy(tokens.url, seed=1) as proxy:
        first = start("first", proxy.url)
        assert first.take(30) == "allowed"
        proxy.set_profile(FaultProfile(partitioned=True))
        overdraft = LIMIT + 200 - first.taken
        until(lambda: first.take(overdraft, wait=0) == "allowed", "the loss of the connection")
        proxy.set_profile(HEALTHY)
        until(lambda: status(tokens)["used_lower"] == LIMIT + 200, "the report")
        assert (status(tokens)["used_upper"], status(tokens)["state"]) == (LIMIT + 200, "lowering")
        assert first.take(1) == start("second").take(1) == "exhausted"


def test_request_of_a_site_that_is_cut_off_waits_until_it_is_back(tokens: Server, start: Start) -> None:
    tokens.reader.request("PATCH", "/api/v1/budgets/tokens", {"on_unreachable": "wait"})
    with Proxy(tokens.url, seed=1) as proxy:
        first = start("first", proxy.url)
        assert first.take(30) == "allowed"
        proxy.set_profile(FaultProfile(partitioned=True))
        until(lambda: first.take(900, wait=0) == "unreachable", "the loss of the connection")
        first.start_taking(900, wait=1)
        assert start("second").take(1) == "allowed"
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


def test_site_that_does_not_answer_a_recall_is_charged_until_it_is_back(tokens: Server, start: Start) -> None:
    first, second = start("first"), start("second")
    assert first.take(30) == "allowed"
    until(lambda: first.take(1) and first.remaining, "a share that is not spent")
    granted = first.taken + first.remaining
    first.process.send_signal(signal.SIGSTOP)
    assert second.take_all() == "exhausted"
    assert second.taken == LIMIT - granted
    first.process.send_signal(signal.SIGCONT)
    until(lambda: second.take(1, wait=1) == "allowed", "units that the site has returned")
    assert second.take_all() == first.take(1) == "exhausted"
    assert first.taken + second.taken == LIMIT


def test_killed_coordinator_stops_no_site_and_grants_nothing_twice(tokens: Server, start: Start) -> None:
    first, second = start("first"), start("second")
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
    assert status(tokens)["used_lower"] == status(tokens)["used_upper"] == LIMIT


class QuickServer(Server):
    """After a restore it waits for six seconds only."""

    def _launch(self, arguments: list[str]) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", QUICK, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())


@pytest.mark.parametrize("marked", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_coordinator_restored_from_an_older_copy(marked: bool, tmp_path: Path) -> None:
    """With a copy that does not say that it is one the limit is exceeded, so the test can fail."""
    sites: list[Site] = []
    state = str(tmp_path / "state")
    with QuickServer(tmp_path / "state", "--silent-after", "1s") as server:
        server.reader.request("POST", "/api/v1/budgets", RULE)
        try:
            sites += [Site(server.url, name) for name in ("first", "second")]
            assert [site.take(30) for site in sites] == ["allowed", "allowed"]
            assert run_command("backup", str(tmp_path / "copy"), "--state-dir", state).returncode == 0  # while it runs
            sites.append(Site(server.url, "third"))  # the copy does not know it
            for site in sites:
                until(lambda site=site: site.take(250) == "allowed", "a request")  # type: ignore[misc]
            server.kill()
            assert run_command("restore", str(tmp_path / "copy"), "--state-dir", state).returncode == 0
            if not marked:
                end_restore(tmp_path / "state" / STATE_FILE)
            server.start()
            if marked:
                until(lambda: [each["state"] for each in server.sites()] == ["connected"] * 3, "all sites")
                assert status(server)["state"] == "restoring"
            sites.append(Site(server.url, "fourth"))
            until(lambda: sites[-1].take_all() == "exhausted", "the last unit")
            taken = sum(site.taken for site in sites)
            assert taken == LIMIT if marked else taken > LIMIT
        finally:
            for site in sites:
                site.kill()
