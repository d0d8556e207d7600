"""Copies of a `state_dir` are opened while the process that uses it runs, or after it was killed: every event counts
once, and no budget admits more than its limit.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

import countless
from countless.client.client import Client
from countless.client.durable import budget_record
from countless.wire.keys import COUNTER, Key
from countless.wire.nats_subjects import shard_of
from support.nats import Coordinator, node
from support.service import TIMEOUT_S, Server, python, until

pytestmark = pytest.mark.slow

LIMIT = 1000
COUNTING = """
import sys, countless
client = countless.connect(site="original")
hits = client.counter("hits")
hits.add(100_000)
assert client.flush(90)
hits.add(7)  # too few for a report
print("counted", flush=True)
sys.stdin.readline()
"""
SPENDING = """
import sys, countless
client = countless.connect(site="original")
budget = client.budget("tokens")
for line in sys.stdin:
    print(sum(bool(budget.take(1, wait=5)) for _ in range(int(line))), flush=True)
client.close(90)
"""
KINDS: dict[str, dict[str, Any]] = {
    "counter": {},
    "window": {"per": "day"},
    "family": {"family": True},
    "window of a family": {"family": True, "per": "day"},
}


def adder(client: Client, name: str, kind: str) -> Callable[[int], None]:
    counter: Any = client.counter(name, **KINDS[kind])
    return (counter.labels(p="a") if "family" in kind else counter).add  # type: ignore[no-any-return]


def known(server: Server, name: str, kind: str) -> int:
    if "family" in kind:
        lower: int = server.reader.request("GET", f"/api/v1/counters/{name}")["lower"]
        return lower
    return int(server.inspect(name)["known"])


def open_copy(server: Server, directory: Path, site: str) -> None:
    """As a process that finds it does; everything in it is delivered."""
    with countless.connect(server.url, site=site, state_dir=directory):
        until(lambda: len(list(directory.iterdir())) == 1, "the copy delivered")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("site", ["original", "copy"])
@pytest.mark.parametrize("counters", [1, 2])
def test_process_whose_state_dir_is_copied_while_it_counts_loses_nothing(
    kind: str, site: str, counters: int, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a second counter its session stays when the copy has delivered."""
    caplog.set_level(logging.WARNING, "countless")
    state_dir = tmp_path / "original"
    with countless.connect(server.url, site="original", state_dir=state_dir) as client:
        add = adder(client, "hits", kind)
        add(100_000)
        assert client.flush(TIMEOUT_S)
        add(5)
        copy = copytree(state_dir, tmp_path / "copy")
        add(7)
        if counters == 2:
            client.counter("second").add(1)
            assert client.flush(TIMEOUT_S)
        open_copy(server, copy, site)
        add(50_000)
        assert client.flush(TIMEOUT_S)
        add(3)
        assert client.close(TIMEOUT_S)
    assert known(server, "hits", kind) == 150_015
    assert any("was its state_dir copied?" in message for message in caplog.messages)


@pytest.mark.parametrize("kind", KINDS)
def test_several_copies_made_at_different_times_deliver_every_event_once(
    kind: str, server: Server, tmp_path: Path
) -> None:
    """Every copy continues as the same incarnation, so what they deliver is merged."""
    state_dir = tmp_path / "original"
    copies = []
    with countless.connect(server.url, site="original", state_dir=state_dir) as client:
        add = adder(client, "hits", kind)
        add(100_000)
        assert client.flush(TIMEOUT_S)
        for number in range(3):
            add(3)
            copies.append(copytree(state_dir, tmp_path / f"copy-{number}"))
        for number in (1, 0, 2):
            open_copy(server, copies[number], f"copy-{number}")
        add(1)
        again = copytree(state_dir, tmp_path / "again")
        add(1)
        open_copy(server, again, "again")
        assert client.close(TIMEOUT_S)
    assert known(server, "hits", kind) == 100_011


def test_forgotten_process_is_delivered_once_by_two_copies_of_what_it_left(server: Server, tmp_path: Path) -> None:
    """Both are told what is known, and deliver the rest as the same new incarnation."""
    state_dir = tmp_path / "original"
    with python(COUNTING, server.url, COUNTLESS_CLIENT_STATE_DIR=str(state_dir)) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "counted\n"
        program.kill()
        program.wait(TIMEOUT_S)
    until(lambda: server.reader.request("DELETE", "/api/v1/sites/original") == {"forgotten": 1}, "it is retired")
    assert server.inspect("hits")["known"] < 100_007
    copy = copytree(state_dir, tmp_path / "copy")
    for directory in (state_dir, copy):
        open_copy(server, directory, directory.name)
        assert server.inspect("hits")["known"] == 100_007


@pytest.fixture
def limited(server: Server) -> Iterator[Server]:
    server.reader.request("POST", "/api/v1/budgets", {"name": "tokens", "limit": LIMIT, "slack": 0})
    yield server
    server.reader.request("DELETE", "/api/v1/budgets/tokens")


@pytest.mark.parametrize("boot", [None, "another"])
@pytest.mark.parametrize("killed", [False, True])
def test_copies_never_admit_more_than_the_limit(
    boot: str | None, killed: bool, limited: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on the same boot, as in the containers of one machine."""
    state_dir = tmp_path / "original"
    with python(SPENDING, limited.url, COUNTLESS_CLIENT_STATE_DIR=str(state_dir)) as program:

        def spend(units: int) -> int:
            assert program.stdin is not None
            assert program.stdout is not None
            print(units, file=program.stdin, flush=True)
            return int(program.stdout.readline())

        admitted = spend(1)
        copy = copytree(state_dir, tmp_path / "copy")
        admitted += spend(499)
        if killed:
            program.kill()
            program.wait(TIMEOUT_S)
        if boot is not None:
            monkeypatch.setattr(budget_record, "boot_id", lambda: boot)
        with countless.connect(limited.url, site="copy", state_dir=copy) as client:
            until(lambda: len(list(copy.iterdir())) == 1, "the copy delivered")
            budget = client.budget("tokens")
            while budget.take(1, wait=2.0):
                admitted += 1
            if not killed:
                admitted += spend(LIMIT)
                program.communicate(timeout=TIMEOUT_S)
            assert client.close(TIMEOUT_S)
    assert admitted <= LIMIT if killed else admitted == LIMIT


def test_process_at_several_shards_loses_nothing_when_its_state_dir_is_copied(tmp_path: Path) -> None:
    shards = 4
    names = list(
        {shard_of(Key(COUNTER, name), shards): name for name in (f"hits{number}" for number in range(40))}.values()
    )
    assert len(names) == shards
    with (
        node(tmp_path / "broker") as broker,
        Coordinator(tmp_path / "one", broker.url, "--silent-after", "1s", shards=shards) as server,
    ):
        with countless.connect(broker.url, site="original", state_dir=tmp_path / "original") as client:
            counters = [client.counter(name) for name in names]
            for counter in counters:
                counter.add(10_000)
            assert client.flush(TIMEOUT_S)
            for counter in counters:
                counter.add(5)
            copy = copytree(tmp_path / "original", tmp_path / "copy")
            client.counter("second").add(1)
            assert client.flush(TIMEOUT_S)
            with countless.connect(broker.url, site="copy", state_dir=copy):
                until(lambda: len(list(copy.iterdir())) == 1, "the copy delivered")
            for counter in counters:
                counter.add(7)
            assert client.close(TIMEOUT_S)
        assert [server.known(name) for name in names] == [10_012] * shards
