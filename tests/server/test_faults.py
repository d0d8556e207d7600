"""Real processes on loopback, killed and restarted: no event is lost or counted twice, and no published total falls."""

import resource
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

import countless
from countless.errors import ServiceError
from countless.randomness import SeededRandom
from support.commands import run_command
from support.service import TIMEOUT_S, Server, Watcher, environment, python, until

pytestmark = pytest.mark.slow

COUNTING = """
import countless, sys
client = countless.connect(site=sys.argv[1] if len(sys.argv) > 1 else "child")
hits = client.counter("hits")
for line in sys.stdin:
    hits.add(int(line))
    print(client.flush(90), flush=True)
client.close(90)
"""


def test_counts_of_two_clients_and_a_labelled_series_are_published(server: Server) -> None:
    with countless.connect(server.url, site="a") as a, countless.connect(server.url, site="b") as b:
        a.counter("hits").add(30)
        b.counter("hits").inc()
        b.counter("hits").labels(route="/a").inc(5)
        assert a.flush()
        assert b.flush()
        assert {site["site"]: site["state"] for site in server.sites()} == {"a": "connected", "b": "connected"}
        for _ in range(5_000):
            a.counter("hits").add()
        assert a.flush()
        answer = server.answer("hits")
        assert answer["lower"] <= 5_036 <= answer["upper"]
    assert server.inspect("hits")["known"] == 5_036
    assert server.answer('hits{route="/a"}')["estimate"] == 5
    assert server.sites() == []


def test_killed_coordinator_restarts_with_all_counts(server: Server) -> None:
    with countless.connect(server.url, site="a") as a, countless.connect(server.url, site="b") as b:
        a.counter("hits").add(1_000)
        b.counter("hits").add(500)
        assert a.flush()
        assert b.flush()
        watcher = Watcher(server, "hits")
        until(lambda: watcher.seen, "the first answer")
        total = 1_500
        for round_ in range(2):
            a.counter("hits").add(100)  # some of it may be under way when the coordinator is killed
            server.kill()
            for _ in range(1_000):
                b.counter("hits").add()
            total += 1_100
            server.start()
            published = watcher.seen[-1]["estimate"]
            assert server.answer("hits")["estimate"] >= published
            assert a.flush(TIMEOUT_S)
            assert b.flush(TIMEOUT_S)
            until(lambda: server.answer("hits")["state"] in ("holding", "exact"), "holding")
            answer = server.answer("hits")
            assert answer["lower"] <= total <= answer["upper"], round_
        watcher.stop()
    assert server.inspect("hits")["known"] == total


def test_restarted_coordinator_is_learning_until_all_sites_answer_or_time_out(server: Server) -> None:
    with countless.connect(server.url, site="a") as a:
        a.counter("hits").add(10)
        child = python(COUNTING, server.url)
        assert child.stdin is not None
        assert child.stdout is not None
        print(7, file=child.stdin, flush=True)
        assert child.stdout.readline() == "True\n"
        assert a.flush()
        child.send_signal(signal.SIGSTOP)  # it cannot answer
        server.kill()
        server.start()
        assert server.answer("hits")["state"] == "learning"
        assert server.answer("hits")["estimate"] >= 17
        assert server.inspect("hits")["known"] >= 17
        with pytest.raises(countless.CountlessError, match="learning after a restart"):
            server.reader.request("GET", "/readyz")
        until(lambda: server.answer("hits")["state"] == "degraded", "degraded")  # the child has timed out
        until(lambda: server.inspect("hits")["silent"] == ["child"], "only the child is silent")
        assert server.reader.request("GET", "/readyz")["ready"]
        child.send_signal(signal.SIGCONT)
        until(lambda: server.answer("hits")["state"] in ("holding", "exact"), "holding")
        child.communicate("3\n", 20)
        assert child.returncode == 0
    assert server.inspect("hits")["known"] == 20


def test_killed_client_is_listed_as_silent_and_its_count_stays(server: Server) -> None:
    child = python(COUNTING, server.url)
    assert child.stdin is not None
    assert child.stdout is not None
    print(41, file=child.stdin, flush=True)
    assert child.stdout.readline() == "True\n"
    child.kill()
    child.communicate()
    until(lambda: server.answer("hits")["state"] == "degraded", "degraded")
    assert server.inspect("hits")["silent"] == ["child"]
    assert server.inspect("hits")["known"] == 41
    with countless.connect(server.url, site="child") as again:  # retires the incarnation before
        again.counter("hits").add(1)
        assert again.flush()
        until(lambda: server.inspect("hits")["silent"] == [], "no site is silent")
    assert server.inspect("hits")["known"] == 42
    assert server.sites() == []


def test_dropped_site_that_was_only_stopped_delivers_the_rest(server: Server) -> None:
    child = python(COUNTING, server.url)
    assert child.stdin is not None
    assert child.stdout is not None
    print(41, file=child.stdin, flush=True)
    assert child.stdout.readline() == "True\n"
    child.send_signal(signal.SIGSTOP)
    until(lambda: server.answer("hits")["state"] == "degraded", "degraded")
    assert server.reader.request("DELETE", "/api/v1/sites/child") == {"forgotten": 1}
    assert server.inspect("hits")["silent"] == []
    child.send_signal(signal.SIGCONT)  # it was not dead
    child.communicate("9\n", 20)
    assert server.inspect("hits")["known"] == 50


FORKING = """
import countless, os, sys
from multiprocessing import get_context
client = countless.connect(site="prefork")
hits = client.counter("hits")
hits.add(10)
if os.environ["WHEN"] == "flushed":
    client.flush(90)

def work(n):
    hits.add(n)
    hits.labels(worker="w").inc()

workers = [get_context("fork").Process(target=work, args=(n,)) for n in (100, 200)]
for worker in workers: worker.start()
hits.add(1)
for worker in workers: worker.join()
pid = os.fork()
if not pid:
    hits.add(1000)
    sys.exit(0)
os.waitpid(pid, 0)
hits.add(1)
"""


def test_client_that_a_child_of_multiprocessing_makes_is_closed_with_it(server: Server) -> None:
    code = """
from multiprocessing import get_context
import countless

def work():
    global client
    client = countless.connect(site="child")
    client.counter("own").add(5)
    assert client.flush(90)

child = get_context("fork").Process(target=work)
child.start()
child.join()
"""
    parent = python(code, server.url)
    parent.communicate(timeout=TIMEOUT_S)
    assert parent.returncode == 0
    assert server.sites() == []
    assert server.inspect("own")["known"] == 5


@pytest.mark.parametrize(("when", "state_dir"), [("flushed", ""), ("not flushed", ""), ("not flushed", "kept")])
def test_forked_children_count_as_incarnations_of_their_own(
    server: Server, tmp_path: Path, when: str, state_dir: str
) -> None:
    place = str(tmp_path / state_dir) if state_dir else ""
    parent = python(FORKING, server.url, WHEN=when, COUNTLESS_CLIENT_STATE_DIR=place)
    parent.communicate(timeout=TIMEOUT_S)
    assert parent.returncode == 0
    assert server.inspect("hits")["known"] == 1_314
    assert server.answer('hits{worker="w"}')["estimate"] == 2
    assert server.sites() == []
    assert list(tmp_path.glob("*/*")) == []  # every process has removed its file


FORKING_WHILE_COUNTING = """
import countless, os, sys, threading
client = countless.connect(site="forking")
hits = client.counter("hits")
done = threading.Event()
counted = [0, 0]

def count(n):
    while not done.is_set():
        hits.add()
        counted[n] += 1

def fork(results):
    pids = []
    for n in range(10):
        pid = os.fork()
        if not pid:
            for _ in range(7): hits.add()
            sys.exit(0)
        pids.append(pid)
    results += [os.waitpid(pid, 0)[1] for pid in pids]

threads = [threading.Thread(target=count, args=(n,)) for n in range(2)]
for thread in threads: thread.start()
results = []
fork(results)
done.set()
for thread in threads: thread.join()
print(client.close(90), sum(counted) + 7 * len(results), results)
"""


@pytest.mark.parametrize("state_dir", ["", "kept"])
def test_forks_while_threads_count_lose_nothing(server: Server, tmp_path: Path, state_dir: str) -> None:
    program = python(
        FORKING_WHILE_COUNTING, server.url, COUNTLESS_CLIENT_STATE_DIR=str(tmp_path / state_dir) if state_dir else ""
    )
    output, _ = program.communicate(timeout=TIMEOUT_S)
    delivered, total, codes = output.split(maxsplit=2)
    assert (delivered, codes) == ("True", f"{[0] * 10}\n")
    assert server.inspect("hits")["known"] == int(total)
    assert list(tmp_path.glob("*/*")) == []


@pytest.mark.soak
def test_repeated_kills_of_the_coordinator_under_load_lose_nothing(server: Server) -> None:
    """A seed chooses when: after a number of answers to a reader that polls without pause."""
    rng, done, counted = SeededRandom(6), Event(), [0, 0, 0]
    clients = [countless.connect(server.url, site=f"site-{number}") for number in range(3)]

    def count(number: int) -> None:
        hits = clients[number].counter("hits")
        while not done.wait(0.002):
            hits.add(1 + number)
            counted[number] += 1 + number

    threads = [Thread(target=count, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: server.answer("hits"), "the first answer")
    watcher = Watcher(server, "hits")
    for _ in range(4):
        for _ in range(rng.randbelow(40)):
            until(lambda: server.answer("hits"), "an answer")
        server.kill()
        server.start()
        assert all(client.flush(TIMEOUT_S) for client in clients)
        until(lambda: server.answer("hits")["state"] in ("holding", "exact"), "holding")
    done.set()
    for thread in threads:
        thread.join()
    assert all(client.close(TIMEOUT_S) for client in clients)
    watcher.stop()
    assert server.inspect("hits")["known"] == sum(counted)
    answer = server.answer("hits")
    assert answer["lower"] <= sum(counted) <= answer["upper"]


def test_coordinator_started_after_the_client_gets_all_counts(server: Server) -> None:
    server.kill()
    with countless.connect(server.url) as client:
        for _ in range(1_000):
            client.counter("hits").add()
        assert not client.flush(0.05)
        until(lambda: "no coordinator" in str(client.last_error), "an error")
        server.start()
        assert client.flush(TIMEOUT_S)
    assert server.inspect("hits")["known"] == 1_000


def test_coordinator_with_an_empty_state_directory_gets_all_counts_again(tmp_path: Path) -> None:
    with Server(tmp_path / "one") as server, countless.connect(server.url) as client:
        client.counter("hits").add(30)
        assert client.flush()
        server.reader.request("PATCH", "/api/v1/counters/hits", {"delta": 0.01})  # starts round 1
        until(lambda: server.inspect("hits")["state"] == "holding" or server.inspect("hits")["state"] == "exact")
        server.kill()
        server.directory = tmp_path / "two"
        server.start()
        client.counter("hits").add(1)
        assert client.flush(TIMEOUT_S)
        until(lambda: server.inspect("hits")["known"] == 31, "all counts")


def test_deleted_counter_starts_again_at_zero(server: Server) -> None:
    with countless.connect(server.url) as client:
        client.counter("hits").add(30)
        assert client.flush()
        server.reader.request("DELETE", "/api/v1/counters/hits")
        assert client.flush()
        client.counter("hits").add(2)
        assert client.flush()
        until(lambda: server.inspect("hits")["known"] == 2, "the new counter")
    assert server.inspect("hits")["known"] == 2


def test_sigterm_ends_watches_and_keeps_all_counts(server: Server) -> None:
    with countless.connect(server.url) as client:
        client.counter("hits").add(30)
        assert client.flush()
        watch = server.reader.watch("hits")
        assert next(watch)["estimate"] == 30
        assert server.stop() == 0
        assert list(watch) == []
        client.counter("hits").add(1)
        server.start()
        assert client.flush(TIMEOUT_S)
    assert server.inspect("hits")["known"] == 31


def test_disk_that_hangs_does_not_keep_the_coordinator_from_stopping(tmp_path: Path) -> None:
    """A save that never returns, in a coordinator that runs as usual otherwise, with a shorter deadline."""
    hanging = (
        "import sys, threading; from countless.cli.main import main; from countless.server import serve\n"
        "from countless.server.storage.sqlite_store import SqliteStore\n"
        "SqliteStore.save = lambda self, changes: (print('saving', flush=True), threading.Event().wait())\n"
        "serve.STOP_DEADLINE_S = 0.5; sys.argv[1:] = ['serve', '--open', '--port', '0', '--state-dir', sys.argv[1]]\n"
        "main()\n"
    )
    command = [sys.executable, "-c", hanging, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        url = run.stdout.readline().split()[-1]
        client = countless.connect(url)
        client.counter("hits").add(5)
        assert run.stdout.readline() == "saving\n"
        run.terminate()
        assert run.wait(TIMEOUT_S) == 1
        assert "stop timed out" in run.stderr.read()
        client.close(0)


def test_full_disk_is_shown_and_does_not_keep_the_coordinator_from_stopping(tmp_path: Path) -> None:
    """A process that may write no file meets the same errors."""
    with Server(tmp_path) as server, countless.connect(server.url) as client:
        client.counter("hits").add(5)
        assert client.flush(TIMEOUT_S)
        _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, most))
        began = datetime.now(UTC)
        client.counter("hits").add(1)
        answer = until(lambda: (found := server.answer("hits"))["state"] == "degraded" and found, "a degraded answer")
        assert (answer["estimate"], datetime.fromisoformat(answer["as_of"]) < datetime.now(UTC)) == (5, True)
        assert began - timedelta(seconds=1) < datetime.fromisoformat(answer["as_of"])
        with pytest.raises(ServiceError, match="the state cannot be saved at present") as refused:
            server.reader.request("POST", "/api/v1/counters", {"name": "other"})
        assert refused.value.status == 503
        forgotten = run_command("site", "forget", "--older-than", "30d", "--url", server.url)
        assert (forgotten.returncode, "cannot be saved at present" in forgotten.stderr) == (2, True), forgotten.stderr
        assert "NOT  ready         the state cannot be saved" in run_command("doctor", "--url", server.url).stdout
        assert server.stop() == 1
        server.start()
        assert client.flush(TIMEOUT_S)
        assert server.inspect("hits")["known"] == 6
