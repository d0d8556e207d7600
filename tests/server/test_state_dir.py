"""Clients with a `state_dir`, killed at any instant: the next process delivers what they counted, exactly once.

The programs write the truth into a file of their own: before and after each `add`, so that only a call that never
returned may have been counted or not.
"""

import logging
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile

import pytest

import countless
from countless.errors import CounterRefused
from countless.randomness import SeededRandom
from support.service import TIMEOUT_S, Server, Watcher, python, until

pytestmark = pytest.mark.slow

WORKERS = 3
COUNTING = """
import countless, mmap, os, signal, sys, threading

truth = memoryview(mmap.mmap(os.open(os.environ["TRUTH"], os.O_RDWR), 4096)).cast("Q")
client = countless.connect(site="kept")
name = os.path.basename(os.environ["TRUTH"])

def work(number):
    shared = client.counter("hits")
    mine = shared.labels(worker=f"{name}-{number}")
    step = 0
    while True:
        step += 1
        n = 3 if step % 5 == 0 else 1
        truth[2 * number] += n
        mine.add(n)
        shared.add(n)
        truth[2 * number + 1] += n

def threads():
    for number in (1, 2):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    work(0)

def forks():
    client.counter("hits")
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
    """A program that counts until it is killed, and what it has truly counted."""

    def __init__(self, server: Server, directory: Path, name: str, way: str = "threads") -> None:
        self.name = name
        path = directory.with_name(name)
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self._truth = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
        self.process = python(COUNTING, server.url, TRUTH=str(path), COUNTLESS_CLIENT_STATE_DIR=str(directory), WAY=way)

    def counted(self) -> int:
        return sum(self._truth[2 * number + 1] for number in range(WORKERS))

    def bounds(self, number: int) -> tuple[int, int]:
        """Without the call that never returned, and with it."""
        return self._truth[2 * number + 1], self._truth[2 * number]

    def count_on(self, n: int) -> None:
        goal = self.counted() + n
        until(lambda: self.counted() >= goal, "counting continues")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT_S)

    def check(self, server: Server) -> None:
        for number in range(WORKERS):
            if not self.bounds(number)[0]:  # it was killed at its start, and the coordinator may not know it
                continue
            known = server.inspect(f'hits{{worker="{self.name}-{number}"}}')["known"]
            assert known in self.bounds(number), (self.name, number, self.bounds(number), known)


@pytest.fixture
def start(server: Server, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs, and kills them at the end of the test."""
    programs: list[Program] = []

    def start(name: str, way: str = "threads") -> Program:
        programs.append(Program(server, tmp_path / "state", name, way))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def deliver(server: Server, directory: Path) -> None:
    """Another process with the same state directory delivers everything, and leaves the directory empty."""
    with countless.connect(server.url, site="kept", state_dir=directory) as client:
        until(lambda: len(list(directory.iterdir())) == 1, "everything delivered")
        assert client.flush()
    assert list(directory.iterdir()) == []


def check(server: Server, programs: list[Program]) -> None:
    for program in programs:
        program.check(server)
    bounds = [program.bounds(number) for program in programs for number in range(WORKERS)]
    known = server.inspect("hits")["known"]
    assert 2 * sum(low for low, _ in bounds) <= known <= 2 * sum(high for _, high in bounds)


def test_programs_killed_at_any_instant_lose_no_event(
    server: Server, tmp_path: Path, start: Callable[..., Program]
) -> None:
    """Each program but the first also delivers what the one before has left, and may be killed while it does."""
    rng, directory, programs = SeededRandom(2), tmp_path / "state", list[Program]()
    watcher: Watcher | None = None
    for number in range(6):
        program = start(f"program-{number}")
        programs.append(program)
        program.count_on(1 + rng.randbelow(3_000))
        if number % 2:  # the coordinator is killed too, before the program
            server.kill()
            program.count_on(500)
        program.kill()
        if number % 2:
            server.start()
        watcher = watcher or Watcher(server, "hits")
    deliver(server, directory)
    check(server, programs)
    assert watcher is not None
    watcher.stop()


def test_forked_workers_killed_together_lose_no_event(
    server: Server, tmp_path: Path, start: Callable[..., Program]
) -> None:
    directory = tmp_path / "state"
    program = start("prefork", "forks")
    assert program.process.stdout is not None
    pids = [int(pid) for pid in program.process.stdout.readline().split()]
    until(lambda: all(program.bounds(number)[0] > 200 for number in range(WORKERS)), "all workers count")
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)
    program.kill()
    until(lambda: len(list(directory.iterdir())) == WORKERS)
    deliver(server, directory)
    check(server, [program])


def test_killed_process_is_recovered_while_another_counts_in_the_same_directory(
    server: Server, tmp_path: Path, start: Callable[..., Program]
) -> None:
    directory = tmp_path / "state"
    programs = [start(name) for name in ("killed", "running")]
    until(lambda: all(each.bounds(number)[0] for each in programs for number in range(WORKERS)), "all workers count")
    programs[0].kill()
    with countless.connect(server.url, site="kept", state_dir=directory):
        until(lambda: len(list(directory.iterdir())) == 2, "the file of the killed one is gone")
    programs[0].check(server)
    assert len(list(directory.iterdir())) == 1
    programs[1].kill()
    deliver(server, directory)
    check(server, programs)


FEW = """
import countless, sys
client = countless.connect(site="kept")
for line in sys.stdin:
    number, seconds = line.split()
    client.counter("hits").add(int(number))
    print(client.flush(float(seconds)), flush=True)
"""


def counted(server: Server, directory: Path, numbers: list[int], meanwhile: bool = False) -> None:
    """A program counts these, and is killed; `meanwhile`: the coordinator is killed before the last of them."""
    child = python(FEW, server.url, COUNTLESS_CLIENT_STATE_DIR=str(directory))
    assert child.stdin is not None
    assert child.stdout is not None
    for number in numbers:
        if meanwhile and number is numbers[-1]:
            server.kill()
        down = server.process.poll() is not None
        print(number, 0.1 if down else 30, file=child.stdin, flush=True)
        assert child.stdout.readline() == f"{not down}\n"
    child.kill()
    child.communicate()


def test_retired_incarnation_is_delivered_by_a_new_one_with_the_rest(server: Server, tmp_path: Path) -> None:
    directory = tmp_path / "state"
    counted(server, directory, [1_000, 77], meanwhile=True)
    server.start()
    with countless.connect(server.url, site="kept") as other:  # without the directory
        other.counter("hits").add(5)
        assert other.flush()
        until(lambda: len(server.sites()) == 1, "the incarnation is retired")
        assert server.inspect("hits")["known"] == 1_005
        deliver(server, directory)
    assert server.inspect("hits")["known"] == 1_082


def test_file_delivered_twice_is_counted_once(server: Server, tmp_path: Path) -> None:
    """As if the recovering process had been killed after the delivery, before it could delete the file."""
    directory, copy = tmp_path / "state", tmp_path / "copy"
    counted(server, directory, [1_000, 77])
    path = next(directory.iterdir())
    copyfile(path, copy)
    for _ in range(2):
        deliver(server, directory)
        assert server.inspect("hits")["known"] == 1_077
        copyfile(copy, path)


def test_counts_not_delivered_before_close_are_delivered_by_the_next_process(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the first that can: also if its first attempts fail, and the program closes the client before the next."""
    server.kill()
    client = countless.connect(server.url, site="kept", state_dir=tmp_path)
    client.counter("hits").add(41)
    assert not client.close(0.05)
    caplog.set_level(logging.INFO, "countless")
    second = countless.connect(server.url, site="kept", state_dir=tmp_path)
    until(lambda: "not delivered yet" in caplog.text, "an attempt of the second process")
    assert not second.close(0.05)
    third = countless.connect(server.url, site="kept", state_dir=tmp_path)
    server.start()
    assert third.close(TIMEOUT_S)
    assert list(tmp_path.glob("*.counts")) == []
    assert server.inspect("hits")["known"] == 41


def test_damaged_file_is_logged_and_left_alone(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strange = tmp_path / "strange.counts"
    strange.write_text("my diary")
    with countless.connect(server.url, state_dir=tmp_path) as client:
        client.counter("hits").add(3)
    assert strange.read_text() == "my diary"
    assert "strange.counts is not a file of counts, or is damaged" in caplog.text
    assert list(tmp_path.iterdir()) == [strange]
    assert server.inspect("hits")["known"] == 3


def test_process_that_exits_normally_leaves_no_file(server: Server, tmp_path: Path) -> None:
    code = "import countless; countless.connect(site='kept').counter('hits').add(7)"
    program = python(code, server.url, COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    program.communicate(timeout=TIMEOUT_S)
    assert list(tmp_path.iterdir()) == []
    assert server.inspect("hits")["known"] == 7


def test_rejected_counter_stays_in_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tmp_path / "config.toml"
    config.write_text("max_counters = 1\n")
    with Server(tmp_path / "server", "--config", str(config)) as server:
        server.reader.request("POST", "/api/v1/counters", {"name": "other"})
        client = countless.connect(server.url, state_dir=tmp_path / "state")
        client.counter("hits").add(3)
        with pytest.raises(CounterRefused, match="max_counters"):
            client.close(TIMEOUT_S)
        with countless.connect(server.url, state_dir=tmp_path / "state"):
            until(lambda: "is refused by the coordinator" in caplog.text, "a warning")
        server.reader.request("DELETE", "/api/v1/counters/other")
        deliver(server, tmp_path / "state")
        assert server.inspect("hits")["known"] == 3
