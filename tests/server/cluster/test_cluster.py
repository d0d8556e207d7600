"""A broker of three nodes and two coordinators: some are killed, one after the other, while sites count."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from countless.randomness import SeededRandom
from support.nats import Coordinator, LoadClient, Node, PollingReader, cluster, require_fenced
from support.service import TIMEOUT_S, until

pytestmark = pytest.mark.slow

COUNTERS = ["n0", "n1", "n3", "n6"]  # one in each shard
Victims = Callable[[list[Node], list[Coordinator]], Iterator[Node | Coordinator]]


def one_node(nodes: list[Node], coordinators: list[Coordinator]) -> Iterator[Node | Coordinator]:
    yield nodes[1]


def eight_at_random(nodes: list[Node], coordinators: list[Coordinator]) -> Iterator[Node | Coordinator]:
    """This seed chooses all three nodes and both coordinators."""
    rng = SeededRandom(7)
    for _ in range(8):
        yield (nodes[rng.randbelow(3)], coordinators[rng.randbelow(2)])[rng.randbelow(2)]


@pytest.mark.parametrize("victims", [one_node, pytest.param(eight_at_random, marks=pytest.mark.soak)])
def test_totals_stay_exact_when_nodes_and_coordinators_are_killed(tmp_path: Path, victims: Victims) -> None:
    with cluster(tmp_path / "broker") as nodes:
        url = ",".join(node.url for node in nodes)
        with Coordinator(tmp_path / "one", url) as one, Coordinator(tmp_path / "two", url) as two:
            load = [LoadClient(url, f"site {number}", COUNTERS) for number in range(3)]
            for name in COUNTERS:
                until(lambda: two.answer(name), "a first answer")  # noqa: B023
            readers = [PollingReader((one, two), name) for name in COUNTERS[:2]]
            for victim in victims(nodes, [one, two]):
                victim.kill()
                assert all(each.client.flush(TIMEOUT_S) for each in load)  # two of three nodes are enough
                victim.start()
                if isinstance(victim, Node):
                    until(victim.answers, "the node is back")
            total = sum(each.stop() for each in load)
            for reader in readers:
                reader.stop()
            for name in COUNTERS:
                for server in (one, two):
                    assert server.known(name) == total
        require_fenced(url, 4)
