"""A faulty network between real processes that are killed, stopped and started: once it is healthy, all totals agree.

Each site counts without pause in a process of its own; the proxy is its only way to the coordinator. The published
total is watched all the time, past the proxy: it never falls.
"""

import signal
import subprocess
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from countless.client.transport.base import ConnectionLost
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.errors import ServiceError
from support.forked import ForkedCommand
from support.proxy import HEALTHY, FaultProfile, Proxy
from support.service import TIMEOUT_S, Server, Watcher, python, until

pytestmark = pytest.mark.slow

COUNTING = """
import countless, sys, threading
client = countless.connect()
hits, done, counted = client.counter("hits"), threading.Event(), [0]

def work():
    while not done.wait(0.003):
        hits.add()
        hits.add(3)
        counted[0] += 4

thread = threading.Thread(target=work)
thread.start()
for line in sys.stdin:
    print(counted[0], flush=True)
done.set()
thread.join()
print(client.close(90), counted[0])
"""

FAULTY = FaultProfile(drop=0.01, cut=0.01, max_delay_s=0.02)
PARTITIONED, STALLED = FaultProfile(partitioned=True), FaultProfile(stalled=True)


class Site:
    """A process that counts."""

    def __init__(self, url: str, name: str) -> None:
        self.process: subprocess.Popen[str] = python(COUNTING, url, COUNTLESS_SITE=name)

    def counted(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def wait_for_more(self, n: int) -> None:
        goal = self.counted() + n
        until(lambda: self.counted() >= goal, "the site has counted more")

    def close(self) -> int:
        """Its final count, which the coordinator has acknowledged."""
        output, _ = self.process.communicate(timeout=2 * TIMEOUT_S)
        delivered, counted = output.split()
        assert delivered == "True"
        return int(counted)


class Deployment:
    """A coordinator, a proxy and three sites."""

    def __init__(self, server: Server, proxy: Proxy) -> None:
        self.server, self.proxy = server, proxy
        server.reader.request("POST", "/api/v1/counters", {"name": "hits", "scheme": "exact"})  # many frames
        self.sites = [Site(proxy.url, f"site-{number}") for number in range(3)]
        until(lambda: self.is_healthy(), "all sites count")
        self.watcher = Watcher(server, "hits")

    def wait_for_faults(self, faults: Tally[str]) -> None:
        until(lambda: self.server.sites() and self.proxy.faults >= faults, "enough faults")

    def is_healthy(self) -> bool:
        states = [site["state"] for site in self.server.sites()]
        return states == ["connected"] * 3 and self.server.answer("hits")["state"] in ("holding", "exact")

    def is_missing_a_site(self) -> bool:
        return self.server.answer("hits")["state"] in ("degraded", "learning")

    def processes(self) -> list["ForkedCommand | subprocess.Popen[str]"]:
        return [self.server.process, *(site.process for site in self.sites)]

    def heal(self) -> None:
        """End all faults; the answer then covers the total again."""
        self.proxy.set_profile(HEALTHY)
        if self.server.process.poll() is not None:
            self.server.start()
        for process in self.processes():
            process.send_signal(signal.SIGCONT)
        before = sum(site.counted() for site in self.sites)
        until(lambda: self.is_healthy() and self.server.answer("hits")["upper"] >= before, "the answer has caught up")
        answer = self.server.answer("hits")
        assert answer["lower"] <= sum(site.counted() for site in self.sites)

    def close(self) -> None:
        """Every event was counted exactly once, and the published total never fell."""
        counted = [site.close() for site in self.sites]
        assert self.server.inspect("hits")["known"] == sum(counted)
        answer = self.server.answer("hits")
        assert answer["lower"] <= sum(counted) <= answer["upper"]
        assert self.server.sites() == []
        self.watcher.stop()


@pytest.fixture
def deployment(server: Server) -> Iterator[Deployment]:
    with Proxy(server.url, seed=4) as proxy:
        deployment = Deployment(server, proxy)
        yield deployment
        for process in deployment.processes():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        for site in deployment.sites:
            site.process.kill()
            site.process.communicate()


@pytest.mark.soak
def test_delayed_cut_and_dropped_frames_lose_nothing(deployment: Deployment) -> None:
    for times in (1, 2):
        deployment.proxy.set_profile(FAULTY)
        deployment.wait_for_faults(Tally(drop=3 * times, cut=3 * times))
        deployment.server.kill()
        deployment.heal()
    deployment.close()


def sites_count_on(deployment: Deployment) -> None:
    for site in deployment.sites[1:]:
        site.wait_for_more(200)


FAULTS: dict[str, Callable[[Deployment], object]] = {
    "partition": lambda d: d.proxy.set_profile(PARTITIONED),
    "stall": lambda d: d.proxy.set_profile(STALLED),
    "faulty network": lambda d: d.proxy.set_profile(FAULTY),
    "stop a site": lambda d: d.sites[0].process.send_signal(signal.SIGSTOP),
    "site times out": lambda d: until(d.is_missing_a_site, "a site has timed out"),
    "kill the coordinator": lambda d: d.server.kill(),
    "start the coordinator": lambda d: d.server.start(),
    "stop the coordinator": lambda d: d.server.process.send_signal(signal.SIGSTOP),
    "sites count on": sites_count_on,
}


@pytest.mark.soak
@pytest.mark.parametrize(
    "scenarios",
    [
        [
            ["partition", "site times out", "sites count on"],
            ["stall", "site times out", "kill the coordinator", "start the coordinator"],
            ["kill the coordinator", "partition", "sites count on", "start the coordinator"],
        ],
        [
            ["stop a site", "kill the coordinator", "sites count on"],
            ["stop a site", "site times out", "faulty network", "kill the coordinator"],
            ["stop the coordinator", "sites count on", "partition"],
            ["faulty network", "stop the coordinator", "sites count on"],
        ],
    ],
    ids=["network first", "processes first"],
)
def test_combined_faults_lose_nothing(deployment: Deployment, scenarios: list[list[str]]) -> None:
    for scenario in scenarios:
        for fault in scenario:
            FAULTS[fault](deployment)
        deployment.heal()
    deployment.close()


DURABLE = """
import countless
hits = countless.connect(site="durable").counter("hits")
for number in range(int(input())):
    hits.add()
print("done", flush=True)
input()
"""


def test_counts_of_killed_sites_are_recovered_through_a_faulty_network(server: Server, tmp_path: Path) -> None:
    with Proxy(server.url, seed=5) as proxy:
        for number, profile in enumerate((FAULTY, PARTITIONED, FAULTY)):
            proxy.set_profile(profile)
            child = python(DURABLE, proxy.url, COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
            assert child.stdin is not None
            assert child.stdout is not None
            print(1_000, file=child.stdin, flush=True)
            assert child.stdout.readline() == "done\n"
            if number == 1:
                server.kill()
            child.kill()
            child.communicate()
        proxy.set_profile(FAULTY)
        server.start()
        last = python("import countless; countless.connect(site='durable'); input()", proxy.url,
                      COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))  # fmt: skip
        until(lambda: len(list(tmp_path.iterdir())) == 1, "all counts are delivered")
        last.communicate("\n", TIMEOUT_S)
    assert list(tmp_path.iterdir()) == []
    assert server.inspect("hits")["known"] == 3_000


def test_partitioned_proxy_refuses_connections(server: Server) -> None:
    with Proxy(server.url, seed=6) as proxy:
        WebSocketConnection(Endpoint.parse(proxy.url), None).close()
        proxy.set_profile(PARTITIONED)
        with pytest.raises(ConnectionLost):
            WebSocketConnection(Endpoint.parse(proxy.url), None)
        with pytest.raises(ServiceError, match="no counter"):
            server.answer("hits")  # past the proxy
