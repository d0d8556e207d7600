"""Budgets with a `state_dir`: what a killed process spent and held is handed in exactly once; the rest is free again.

The programs write the truth into a file of their own, before and after each call: how much they have spent and hold at
least, and at most if the call that never returned was decided.
"""

import mmap
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile

import pytest

import countless
from countless.randomness import SeededRandom
from support.service import TIMEOUT_S, Server, python, until

pytestmark = pytest.mark.slow

WORKERS = 3
SPENDING = """
import countless, mmap, os, threading

truth = memoryview(mmap.mmap(os.open(os.environ["TRUTH"], os.O_RDWR), 4096)).cast("Q")
client = countless.connect(site="kept")
budget = client.budget("tokens")

def work(number):
    low, high = 2 * number, 2 * number + 1
    step = 0
    while True:
        step += 1
        n = 1 if step % 5 else 3
        truth[high] += n
        if step % 7:
            if not budget.take(n, wait=0.01):
                truth[high] -= n
                continue
            truth[low] += n
            continue
        try:
            hold = budget.reserve(n, wait=0.01)
        except countless.CountlessError:
            truth[high] -= n
            continue
        truth[low] += n
        if step % 70:
            truth[low] -= n - 1
            hold.settle(1)
            truth[high] -= n - 1

def threads():
    for number in (1, 2):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    work(0)

def forks():
    budget.take(1, wait=90) and truth.__setitem__(6, 1)
    truth[7] = 1
    pids = [os.getpid()]
    for number in (1, 2):
        pid = os.fork()
        if not pid:
            work(number)
        pids.append(pid)
    print(*pids, flush=True)
    work(0)

globals()[os.environ["WAY"]]()
"""


class Program:
    """A program that spends until it is killed, and what it has truly spent and holds."""

    def __init__(self, server: Server, directory: Path, name: str, way: str = "threads") -> None:
        path = directory.with_name(name)
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self._truth = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
        variables = {"TRUTH": str(path), "COUNTLESS_CLIENT_STATE_DIR": str(directory), "WAY": way}
        self.process = python(SPENDING, server.url, **variables)

    @property
    def at_least(self) -> int:
        return sum(self._truth[0:8:2])

    @property
    def at_most(self) -> int:
        return sum(self._truth[1:8:2])

    def spent_by(self, worker: int) -> int:
        """At least."""
        return self._truth[2 * worker]

    def spend(self, n: int) -> None:
        goal = self.at_least + n
        until(lambda: self.at_least >= goal, "spending continues")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def tokens(server: Server) -> Iterator[Server]:
    """A coordinator with a budget that is never used up."""
    server.reader.request("POST", "/api/v1/budgets", {"name": "tokens", "limit": 10**9, "slack": 0})
    yield server
    server.reader.request("DELETE", "/api/v1/budgets/tokens")


@pytest.fixture
def start(tokens: Server, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs, and kills them at the end of the test."""
    programs: list[Program] = []

    def start(name: str, way: str = "threads") -> Program:
        programs.append(Program(tokens, tmp_path / "state", name, way))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def hand_in(server: Server, directory: Path) -> None:
    """Another process with the same state directory hands in everything, and leaves the directory empty."""
    with countless.connect(server.url, site="kept", state_dir=directory):
        until(lambda: len(list(directory.iterdir())) == 1, "everything handed in")
    assert list(directory.iterdir()) == []


def check(server: Server, programs: list[Program]) -> None:
    status = server.reader.request("GET", "/api/v1/budgets/tokens")
    assert status["used_lower"] == status["used_upper"]
    assert sum(each.at_least for each in programs) <= status["used_upper"] <= sum(each.at_most for each in programs)


def test_spending_of_programs_killed_at_any_instant_is_handed_in_exactly_once(
    tokens: Server, tmp_path: Path, start: Callable[..., Program]
) -> None:
    """Each program but the first also hands in what the one before has left, and may be killed while it does."""
    rng, programs = SeededRandom(2), list[Program]()
    for number in range(6):
        program = start(f"program-{number}")
        programs.append(program)
        program.spend(1 + rng.randbelow(3_000))
        if number % 2:
            tokens.kill()
        program.kill()
        if number % 2:
            tokens.start()
    hand_in(tokens, tmp_path / "state")
    check(tokens, programs)


def test_spending_of_forked_workers_is_handed_in_exactly_once(
    tokens: Server, tmp_path: Path, start: Callable[..., Program]
) -> None:
    program = start("prefork", "forks")
    assert program.process.stdout is not None
    pids = [int(pid) for pid in program.process.stdout.readline().split()]
    program.spend(2_000)
    until(lambda: all(program.spent_by(number) for number in range(WORKERS)), "all workers spend")
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)
    program.kill()
    until(lambda: len(list((tmp_path / "state").iterdir())) == WORKERS)
    hand_in(tokens, tmp_path / "state")
    check(tokens, [program])


def test_file_handed_in_twice_is_charged_once(tokens: Server, tmp_path: Path, start: Callable[..., Program]) -> None:
    """As if the recovering process had been killed after the coordinator took it, before it could delete the file."""
    directory, copy = tmp_path / "state", tmp_path / "copy"
    program = start("program")
    program.spend(100)
    program.kill()
    path = next(directory.iterdir())
    copyfile(path, copy)
    for _ in range(3):
        hand_in(tokens, directory)
        check(tokens, [program])
        copyfile(copy, path)


def test_retired_incarnation_is_handed_in(tokens: Server, tmp_path: Path, start: Callable[..., Program]) -> None:
    program = start("program")
    program.spend(100)
    program.kill()
    with countless.connect(tokens.url, site="kept") as other:  # without the directory
        other.counter("hits").inc()
        assert other.flush()
        until(lambda: tokens.reader.request("GET", "/api/v1/budgets/tokens")["leaked"], "the incarnation is retired")
    hand_in(tokens, tmp_path / "state")
    check(tokens, [program])


HOLDING = """
import countless
budget = countless.connect(site="kept").budget("tokens")
assert budget.take(40, wait=90)
hold = budget.reserve(7, wait=90)
assert budget.take(wait=90)
print("ready", flush=True)
input()
"""


def test_rest_of_the_limit_of_a_killed_process_is_free_again(server: Server, tmp_path: Path) -> None:
    server.reader.request("POST", "/api/v1/budgets", {"name": "tokens", "limit": 100, "slack": 0})
    with python(HOLDING, server.url, COUNTLESS_CLIENT_STATE_DIR=str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
    with countless.connect(server.url, site="other", state_dir=tmp_path) as client:
        budget = client.budget("tokens")
        until(lambda: budget.take(52, wait=1), "what the killed process left")
        assert not budget.take(1, wait=TIMEOUT_S)
    server.reader.request("DELETE", "/api/v1/budgets/tokens")
