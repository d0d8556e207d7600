"""A bad network between real processes that are killed, stopped and started again: after it heals, all totals agree.

Every client counts without pause in a process of its own; the proxy is their only way to the coordinator. The published
total is watched all the time, past the proxy: it never falls.
"""

import signal
import subprocess
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from countless.client.api import ServiceError
from support.proxy import CALM, Proxy, Weather
from support.service import TIMEOUT_S, Server, Watcher, python, until

pytestmark = pytest.mark.slow

COUNTING = """
import countless, sys, threading
client = countless.connect()
hits, done, counted = client.counter("hits"), threading.Event(), [0]

def work():
    while not done.wait(0.001):
        hits.add()
        hits.add(3)
        counted[0] += 4

thread = threading.Thread(target=work)
thread.start()
for line in sys.stdin:
    print(counted[0], flush=True)
done.set()
thread.join()
print(client.close(30), counted[0])
"""

STORM = Weather(drop=0.01, cut=0.01, duplicate=0.3, delay=0.02)


class Site:
    """A process that counts."""

    def __init__(self, url: str, name: str) -> None:
        self.process: subprocess.Popen[str] = python(COUNTING, url, COUNTLESS_SITE=name)

    def counted(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def count_on(self, n: int) -> None:
        goal = self.counted() + n
        until(lambda: self.counted() >= goal, "counting goes on")

    def close(self) -> int:
        """What it has counted in all, and the coordinator has confirmed."""
        output, _ = self.process.communicate(timeout=2 * TIMEOUT_S)
        delivered, counted = output.split()
        assert delivered == "True"
        return int(counted)


class Field:
    """A coordinator, a proxy and three sites."""

    def __init__(self, server: Server, proxy: Proxy) -> None:
        self.server, self.proxy = server, proxy
        server.reader.request("POST", "/api/v1/counters", {"name": "hits", "scheme": "exact"})  # many frames
        self.sites = [Site(proxy.url, f"site-{number}") for number in range(3)]
        until(lambda: self.healthy(), "everybody counts")
        self.watcher = Watcher(server, "hits")

    def wait_for(self, weather: Tally[str]) -> None:
        until(lambda: self.server.sites() and self.proxy.happened >= weather, "enough weather")

    def healthy(self) -> bool:
        states = [site["state"] for site in self.server.sites()]
        return states == ["connected"] * 3 and self.server.answer("hits")["state"] in ("holding", "exact")

    def heal(self) -> None:
        """Calm weather, everybody awake: the answer covers the truth, and goes on doing so."""
        self.proxy.become(CALM)
        if self.server.process.poll() is not None:
            self.server.start()
        for process in (self.server.process, *(site.process for site in self.sites)):
            process.send_signal(signal.SIGCONT)
        before = sum(site.counted() for site in self.sites)
        until(lambda: self.healthy() and self.server.answer("hits")["upper"] >= before, "the answer has caught up")
        answer = self.server.answer("hits")
        assert answer["lower"] <= sum(site.counted() for site in self.sites)

    def end(self) -> None:
        counted = [site.close() for site in self.sites]
        assert self.server.inspect("hits")["known"] == sum(counted)
        answer = self.server.answer("hits")
        assert answer["lower"] <= sum(counted) <= answer["upper"]
        assert self.server.sites() == []
        self.watcher.stop()


@pytest.fixture
def field(server: Server) -> Iterator[Field]:
    with Proxy(server.url, seed=4) as proxy:
        field = Field(server, proxy)
        yield field
        for process in (server.process, *(site.process for site in field.sites)):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        for site in field.sites:
            site.process.kill()
            site.process.communicate()


def test_frames_that_come_late_twice_half_or_not_at_all(field: Field) -> None:
    for times in (1, 2):
        field.proxy.become(STORM)
        field.wait_for(Tally(drop=3 * times, cut=3 * times, duplicate=50 * times))
        field.server.kill()
        field.heal()
    field.end()


def silent(field: Field) -> bool:
    return field.server.answer("hits")["state"] in ("degraded", "learning")


def count_on(sites: list[Site]) -> None:
    for site in sites:
        site.count_on(200)


FAULTS: dict[str, Callable[[Field], object]] = {
    "the network parts": lambda field: field.proxy.become(Weather(parted=True)),
    "the network stalls": lambda field: field.proxy.become(Weather(stalled=True)),
    "it storms": lambda field: field.proxy.become(STORM),
    "a site stops": lambda field: field.sites[0].process.send_signal(signal.SIGSTOP),
    "a site is missed": lambda field: until(lambda: silent(field), "somebody is missed"),
    "the coordinator is killed": lambda field: field.server.kill(),
    "the coordinator comes back": lambda field: field.server.start(),
    "the coordinator stops": lambda field: field.server.process.send_signal(signal.SIGSTOP),
    "the sites count on": lambda field: count_on(field.sites[1:]),
}


@pytest.mark.parametrize(
    "stories",
    [
        [
            ["the network parts", "a site is missed", "the sites count on"],
            ["the network stalls", "a site is missed", "the coordinator is killed", "the coordinator comes back"],
            ["the coordinator is killed", "the network parts", "the sites count on", "the coordinator comes back"],
        ],
        [
            ["a site stops", "the coordinator is killed", "the sites count on"],
            ["a site stops", "a site is missed", "it storms", "the coordinator is killed"],
            ["the coordinator stops", "the sites count on", "the network parts"],
            ["it storms", "the coordinator stops", "the sites count on"],
        ],
    ],
    ids=["network first", "processes first"],
)
def test_faults_that_meet(field: Field, stories: list[list[str]]) -> None:
    for story in stories:
        for fault in story:
            FAULTS[fault](field)
        field.heal()
    field.end()


KEPT = """
import countless
hits = countless.connect(site="kept").counter("hits")
for number in range(int(input())):
    hits.add()
print("done", flush=True)
input()
"""


def test_a_site_is_killed_behind_a_bad_network_and_its_heir_works_through_it(server: Server, tmp_path: Path) -> None:
    with Proxy(server.url, seed=5) as proxy:
        for number, weather in enumerate((STORM, Weather(parted=True), STORM)):
            proxy.become(weather)
            child = python(KEPT, proxy.url, COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
            assert child.stdin is not None
            assert child.stdout is not None
            print(1_000, file=child.stdin, flush=True)
            assert child.stdout.readline() == "done\n"
            if number == 1:
                server.kill()
            child.kill()
            child.communicate()
        proxy.become(STORM)
        server.start()
        last = python("import countless; countless.connect(site='kept'); input()", proxy.url,
                      COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))  # fmt: skip
        until(lambda: len(list(tmp_path.iterdir())) == 1, "everything delivered")
        last.communicate("\n", TIMEOUT_S)
    assert list(tmp_path.iterdir()) == []
    assert server.inspect("hits")["known"] == 3_000


def test_the_proxy_lets_nobody_through_when_parted(server: Server) -> None:
    from countless.client.transport.base import ConnectionLost
    from countless.client.transport.endpoint import Endpoint
    from countless.client.transport.websocket import WebSocketConnection

    with Proxy(server.url, seed=6) as proxy:
        WebSocketConnection(Endpoint.parse(proxy.url), None).close()
        proxy.become(Weather(parted=True))
        with pytest.raises(ConnectionLost):
            WebSocketConnection(Endpoint.parse(proxy.url), None)
        with pytest.raises(ServiceError, match="no counter"):
            server.answer("hits")  # past the proxy
