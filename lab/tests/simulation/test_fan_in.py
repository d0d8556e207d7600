"""Fan-in (design/proofs/fan-in.md): processes behind an agent are one site that sees their counts interleaved."""

import os
import selectors
import socket

import pytest

from countless.randomness import SeededRandom
from countless.schemes.registry import SCHEMES
from countless_lab.simulation.world import World
from support.trackers import Line, tapped_tracker

pytestmark = pytest.mark.slow

AGENTS, PROCESSES, EACH, ALPHA = 3, 3, 300, 0.1


def counting_process(events: int) -> tuple[int, socket.socket]:
    """A process that writes one byte for each event; its number, and our end of the connection."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        for _ in range(events):
            theirs.send(b"1")
        os._exit(0)
    theirs.close()
    return child, ours


def arrivals() -> list[int]:
    """The agents at which events of real processes arrived, in the order in which they did."""
    intake, rng = selectors.DefaultSelector(), SeededRandom(1)
    order: list[int] = []
    children, connections = [], {}
    for agent in range(AGENTS):
        for _ in range(PROCESSES):
            child, connection = counting_process(EACH)
            children.append(child)
            connections[connection.fileno()] = connection
            intake.register(connection, selectors.EVENT_READ, agent)
    while intake.get_map():
        for key, _ in intake.select():
            connection = connections[key.fd]
            received = connection.recv(1 + rng.randbelow(50))
            order += [key.data] * len(received)
            if not received:
                intake.unregister(connection)
                connection.close()
    intake.close()
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    return order


def test_processes_behind_agents_are_one_site_each() -> None:
    """Meters that are fed by processes, and plain sites that see the same interleaving: the same transcript."""
    order = arrivals()
    assert [order.count(agent) for agent in range(AGENTS)] == [PROCESSES * EACH] * AGENTS
    for scheme in SCHEMES:
        tracker, theirs = tapped_tracker(sites=AGENTS, alpha=ALPHA, delta=1e-9, scheme=scheme, seed=7)
        ours: list[Line] = []
        tap = lambda site_id, message, lines=ours: lines.append((site_id, message))  # noqa: E731
        world = World(scheme, AGENTS, alpha=ALPHA, delta=1e-9, seed=7, tap=tap)
        for agent in order:
            tracker.site(agent).add()
            assert world.add(agent) == tracker.answer.estimate
        assert ours == theirs
        assert tracker.total == world.total == len(order)


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_agent_may_add_batches(scheme: str) -> None:
    """At the end of each batch the answer is within its bound, and nothing is counted twice or not at all."""
    world = World(scheme, AGENTS, alpha=ALPHA, delta=1e-9, seed=7)
    rng, total = SeededRandom(5), 0
    while total < 4_000:
        batch = 1 + rng.randbelow(40)
        world.add(rng.randbelow(AGENTS), batch)
        total += batch
        assert world.total == total
        assert world.answer.contains(total)
