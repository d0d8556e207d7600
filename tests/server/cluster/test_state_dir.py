"""`state_dir` over NATS: what a killed process has left is delivered to every shard, exactly once."""

from pathlib import Path

import pytest

import countless
from countless.wire.keys import COUNTER, Key
from countless.wire.nats_subjects import shard_of
from support.nats import Coordinator, Node
from support.service import TIMEOUT_S, python, until

pytestmark = pytest.mark.slow

SHARDS = 4
PROGRAM = """
import sys, countless
client = countless.connect(site="web")
counters = [client.counter(name) for name in sys.stdin.readline().split()]
for counter in counters:
    counter.add(100_000)
assert client.flush(90)
for counter in counters:
    counter.add(7)  # too few for a report
print("counted", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("forgotten", [False, True])
def test_killed_process_is_delivered_to_every_shard(broker: Node, tmp_path: Path, forgotten: bool) -> None:
    """If it was forgotten, each shard tells what it knows, and gets the rest from a new incarnation."""
    counters = {shard_of(Key(COUNTER, name), SHARDS): name for name in (f"{forgotten}{number}" for number in range(40))}
    assert len(counters) == SHARDS
    directory = tmp_path / "counts"
    with Coordinator(tmp_path / "one", broker.url, "--silent-after", "0.3s", shards=SHARDS) as server:
        with python(PROGRAM, broker.url, COUNTLESS_CLIENT_STATE_DIR=str(directory)) as program:
            assert program.stdin is not None
            assert program.stdout is not None
            print(*counters.values(), file=program.stdin, flush=True)
            assert program.stdout.readline() == "counted\n"
            program.kill()
            program.wait(TIMEOUT_S)
        if forgotten:
            until(lambda: [each["state"] for each in server.sites()] == ["silent"] * SHARDS, "all shards miss it")
            assert server.reader.request("DELETE", "/api/v1/sites/web") == {"forgotten": SHARDS}
        client = countless.connect(broker.url, site="other", state_dir=directory)
        for name in counters.values():
            until(lambda: server.known(name) == 100_007, "the rest")  # noqa: B023
        assert client.close(TIMEOUT_S)
        assert list(directory.iterdir()) == []
