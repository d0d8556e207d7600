"""Clients with a `state_dir`, killed at any instant: what they counted is delivered by whoever comes next, once.

The programs write the truth into a file of their own: before and after each `add`, so that only a call that never
returned may have been counted or not.
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
from support.service import PATIENCE, Server, Watcher, python, until

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


class Life:
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
        """With the call that never returned, and without."""
        return self._truth[2 * number + 1], self._truth[2 * number]

    def count_on(self, n: int) -> None:
        goal = self.counted() + n
        until(lambda: self.counted() >= goal, "a while of counting")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    def check(self, server: Server) -> None:
        for number in range(WORKERS):
            if not self.bounds(number)[0]:  # it had hardly begun, and perhaps nothing is known of it
                continue
            known = server.inspect(f'hits{{worker="{self.name}-{number}"}}')["known"]
            assert known in self.bounds(number), (self.name, number, self.bounds(number), known)


@pytest.fixture
def born(server: Server, tmp_path: Path) -> Iterator[Callable[..., Life]]:
    """Begins lives; none outlives the test."""
    lives: list[Life] = []

    def begin(name: str, way: str = "threads") -> Life:
        lives.append(Life(server, tmp_path / "state", name, way))
        return lives[-1]

    yield begin
    for life in lives:
        life.kill()


def deliver(server: Server, directory: Path) -> None:
    """A process of the same state directory comes, and finds nothing more to do when it goes."""
    with countless.connect(server.url, site="kept", state_dir=directory) as client:
        until(lambda: len(list(directory.iterdir())) == 1, "everything delivered")
        assert client.flush()
    assert list(directory.iterdir()) == []


def check(server: Server, lives: list[Life]) -> None:
    for life in lives:
        life.check(server)
    bounds = [life.bounds(number) for life in lives for number in range(WORKERS)]
    known = server.inspect("hits")["known"]
    assert sum(low for low, _ in bounds) <= known <= sum(high for _, high in bounds)


def test_killed_at_any_instant_under_load_with_the_coordinator_there_and_away(
    server: Server, tmp_path: Path, born: Callable[..., Life]
) -> None:
    """The dice choose when. Each life but the first also delivers what the one before left, and may die doing so."""
    rng, directory, lives = SeededRandom(2), tmp_path / "state", list[Life]()
    watcher: Watcher | None = None
    for number in range(6):
        life = born(f"life-{number}")
        lives.append(life)
        life.count_on(1 + rng.randbelow(3_000))
        if number % 2:  # both sides die: first one, then the other
            server.kill()
            life.count_on(500)
        life.kill()
        if number % 2:
            server.start()
        watcher = watcher or Watcher(server, "hits")
    deliver(server, directory)
    check(server, lives)
    assert watcher is not None
    watcher.stop()


def test_workers_of_one_server_die_together(server: Server, tmp_path: Path, born: Callable[..., Life]) -> None:
    directory = tmp_path / "state"
    life = born("prefork", "forks")
    assert life.process.stdout is not None
    pids = [int(pid) for pid in life.process.stdout.readline().split()]
    until(lambda: all(life.bounds(number)[0] > 200 for number in range(WORKERS)), "everybody counts")
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)
    life.kill()
    until(lambda: len(list(directory.iterdir())) == WORKERS)
    deliver(server, directory)
    check(server, [life])


def test_one_dies_and_another_that_shares_the_directory_goes_on(
    server: Server, tmp_path: Path, born: Callable[..., Life]
) -> None:
    directory = tmp_path / "state"
    lives = [born(name) for name in ("dies", "lives")]
    until(lambda: all(life.bounds(number)[0] for life in lives for number in range(WORKERS)), "everybody counts")
    lives[0].kill()
    with countless.connect(server.url, site="kept", state_dir=directory):
        until(lambda: len(list(directory.iterdir())) == 2, "the dead one's file is gone")
    lives[0].check(server)
    assert len(list(directory.iterdir())) == 1
    lives[1].kill()
    deliver(server, directory)
    check(server, lives)


FEW = """
import countless, sys
client = countless.connect(site="kept")
for line in sys.stdin:
    client.counter("hits").add(int(line))
    print(client.flush(0.3), flush=True)
"""


def counted(server: Server, directory: Path, numbers: list[int], meanwhile: bool = False) -> None:
    """A program counts these, and is killed; `meanwhile`: the coordinator dies before the last of them."""
    child = python(FEW, server.url, COUNTLESS_CLIENT_STATE_DIR=str(directory))
    assert child.stdin is not None
    assert child.stdout is not None
    for number in numbers:
        if meanwhile and number is numbers[-1]:
            server.kill()
        print(number, file=child.stdin, flush=True)
        assert child.stdout.readline() == ("False\n" if server.process.poll() is not None else "True\n")
    child.kill()
    child.communicate()


def test_a_life_that_was_given_up_is_delivered_by_another_with_the_rest(server: Server, tmp_path: Path) -> None:
    directory = tmp_path / "state"
    counted(server, directory, [1_000, 77], meanwhile=True)
    server.start()
    with countless.connect(server.url, site="kept") as other:  # it knows nothing of the directory
        other.counter("hits").add(5)
        assert other.flush()
        until(lambda: len(server.sites()) == 1, "the dead life is given up")
        assert server.inspect("hits")["known"] == 1_005
        deliver(server, directory)
    assert server.inspect("hits")["known"] == 1_082


def test_what_is_delivered_twice_is_counted_once(server: Server, tmp_path: Path) -> None:
    """As if the heir had died after the last word had arrived, and before it could delete the file."""
    directory, copy = tmp_path / "state", tmp_path / "copy"
    counted(server, directory, [1_000, 77])
    path = next(directory.iterdir())
    copyfile(path, copy)
    for _ in range(2):
        deliver(server, directory)
        assert server.inspect("hits")["known"] == 1_077
        copyfile(copy, path)


def test_what_could_not_be_delivered_in_time_is_delivered_later(server: Server, tmp_path: Path) -> None:
    server.kill()
    client = countless.connect(server.url, site="kept", state_dir=tmp_path)
    client.counter("hits").add(41)
    assert not client.close(0.05)
    server.start()
    deliver(server, tmp_path)
    assert server.inspect("hits")["known"] == 41


def test_a_file_that_makes_no_sense_is_named_and_left_alone(
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


def test_a_process_that_ends_in_good_order_leaves_nothing(server: Server, tmp_path: Path) -> None:
    code = "import countless; countless.connect(site='kept').counter('hits').add(7)"
    program = python(code, server.url, COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    program.communicate(timeout=PATIENCE)
    assert list(tmp_path.iterdir()) == []
    assert server.inspect("hits")["known"] == 7


def test_a_counter_the_coordinator_refuses_stays_in_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tmp_path / "config.toml"
    config.write_text("max_counters = 1\n")
    with Server(tmp_path / "server", "--config", str(config)) as server:
        server.reader.request("POST", "/api/v1/counters", {"name": "other"})
        client = countless.connect(server.url, state_dir=tmp_path / "state")
        client.counter("hits").add(3)
        assert not client.close(PATIENCE)
        with countless.connect(server.url, state_dir=tmp_path / "state"):
            until(lambda: "does not take in all of" in caplog.text, "a warning")
        server.reader.request("DELETE", "/api/v1/counters/other")
        deliver(server, tmp_path / "state")
        assert server.inspect("hits")["known"] == 3
