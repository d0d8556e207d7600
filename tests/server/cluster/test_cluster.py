"""A broker of three nodes and two coordinators; the dice choose who is killed next while everybody counts."""

from pathlib import Path

import pytest

from countless.randomness import SeededRandom
from support.nats import Coordinator, ExactSum, Reading, cluster, require_fenced
from support.service import until

pytestmark = pytest.mark.slow

COUNTERS = ["n0", "n1", "n3", "n6"]  # one in each shard
KILLS = 4  # two different nodes, both coordinators


def test_nodes_and_coordinators_are_killed_under_load(tmp_path: Path) -> None:
    rng = SeededRandom(7)
    with cluster(tmp_path / "broker") as nodes:
        url = ",".join(node.url for node in nodes)
        with Coordinator(tmp_path / "one", url) as one, Coordinator(tmp_path / "two", url) as two:
            counting = [ExactSum(url, f"site {number}", COUNTERS) for number in range(3)]
            for name in COUNTERS:
                until(lambda: two.answer(name), "a first answer")  # noqa: B023
            reading = [Reading((one, two), name) for name in COUNTERS[:2]]
            for _ in range(KILLS):
                victim = (nodes[rng.randbelow(3)], (one, two)[rng.randbelow(2)])[rng.randbelow(2)]
                victim.kill()
                assert all(each.client.flush(60) for each in counting)  # two of three nodes are enough
                victim.start()
                if victim in nodes:
                    until(nodes[nodes.index(victim)].answers, "the node is back")
            total = sum(each.stop() for each in counting)
            for each in reading:
                each.stop()
            for name in COUNTERS:
                for server in (one, two):
                    assert server.known(name) == total
        require_fenced(url, 4)
