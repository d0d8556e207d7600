"""Coordinators behind a real broker, killed, stopped and added while sites count.

Nothing is lost, nothing doubled, and no total falls, whoever is asked.
"""

import json
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import urlopen

import pytest
import trustme

import countless
from countless.client.api import ApiClient
from countless.client.transport.nats_socket import NatsSocket
from countless.server.cluster.tokens import change_tokens
from countless.server.http.auth import new_token
from countless.wire.nats_subjects import StreamClosed, decode_downlink, shard_of
from countless.wire.nats_url import Broker
from support.nats import Coordinator, ExactSum, Node, Reading, node, require_fenced
from support.service import PATIENCE, python, until

pytestmark = pytest.mark.slow

SHARDS = 4
SPREAD = ["n0", "n1", "n2", "n3", "n4", "n6"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.fixture(scope="module")
def pair(broker: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Coordinator, Coordinator]]:
    directory = tmp_path_factory.mktemp("coordinators")
    with Coordinator(directory / "one", broker.url) as one, Coordinator(directory / "two", broker.url) as two:
        yield one, two


def spread(prefix: str) -> list[str]:
    """Names of counters, one for each shard."""
    found: dict[int, str] = {}
    for number in range(1000):
        name = f"{prefix}-{number}"
        found.setdefault(shard_of(name, SHARDS), name)
    return [found[shard] for shard in range(SHARDS)]


def has(server: Coordinator) -> set[str]:
    """The counters that a coordinator has itself."""
    lines: list[str] = server.metrics().splitlines()
    return {line.split('"')[1] for line in lines if line.startswith("countless_count_total")}


def both_have_some(pair: tuple[Coordinator, Coordinator]) -> None:
    until(lambda: has(pair[0]) and has(pair[1]) and not has(pair[0]) & has(pair[1]), "counters at both")


def test_whoever_is_asked_answers_for_every_counter(broker: Node, pair: tuple[Coordinator, Coordinator]) -> None:
    assert {shard_of(name, SHARDS) for name in SPREAD} == set(range(SHARDS))
    with countless.connect(broker.url, site="web.1") as a, countless.connect(broker.url, site="web 2") as b:
        for number, name in enumerate(SPREAD):
            a.counter(name).add(10 + number)
            b.counter(name).labels(route="/ä").inc()
        assert a.flush(20)
        assert b.flush(20)
        both_have_some(pair)
        for server in pair:
            until(lambda: server.answer(SPREAD[-1])["state"] == "exact", "everybody has answered")  # noqa: B023
            assert [server.answer(name)["estimate"] for name in SPREAD] == [10, 11, 12, 13, 14, 15]
            assert set(server.answer("n0")) == {"counter", "estimate", "lower", "upper", "state", "as_of"}
            assert [view["counter"] for view in server.reader.counters()] == sorted(
                [*SPREAD, *(f'{name}{{route="/ä"}}' for name in SPREAD)]
            )
            assert server.inspect("n0")["known"] == 10
            assert {site["site"] for site in server.sites()} == {"web.1", "web 2"}
            with pytest.raises(countless.CountlessError, match="no counter 'unheard'"):
                server.answer("unheard")
        here = next(iter(has(pair[0]) & set(SPREAD)))
        watch = pair[1].reader.watch(here)  # of a counter that the other has
        first = next(watch)["estimate"]
        a.counter(here).add(5)
        assert next(watch)["estimate"] == first + 5
        watch.close()
        pair[0].reader.request("POST", "/api/v1/counters", {"name": "made", "alpha": 0.2})
        assert pair[1].inspect("made")["alpha"] == 0.2
        pair[1].reader.request("DELETE", "/api/v1/counters/made")
    until(lambda: pair[0].sites() == [], "every goodbye has arrived")
    require_fenced(broker.url, SHARDS)


def fed(server: Coordinator, query: str, event: str) -> dict[str, Any]:
    """What the page is told first under this name."""
    with urlopen(f"{server.url}/page/feed?{query}", timeout=PATIENCE) as response:  # noqa: S310
        for line in response:
            if line == f"event: {event}\n".encode():
                found: dict[str, Any] = json.loads(next(response).removeprefix(b"data: "))
                return found
    raise AssertionError(f"no {event}")


def test_the_page_shows_what_this_coordinator_has(broker: Node, pair: tuple[Coordinator, Coordinator]) -> None:
    counters = spread("page")
    with countless.connect(broker.url, site="shown") as client:
        before = client.connected
        for name in counters:
            client.counter(name).add(3)
        assert client.flush(20)
        assert (before, client.connected) == (False, True)
        until(lambda: all(len(has(server) & set(counters)) == SHARDS // 2 for server in pair), "half of them at each")
        for server in pair:
            mine = has(server) & set(counters)
            listed = fed(server, "find=page-", "list")["rows"]
            assert {row["counter"] for row in listed} == mine
            one = min(mine)
            assert [row[:2] for row in fed(server, f"counter={one}", "sites")["rows"]] == [["shown", "connected"]]
            with urlopen(f"{server.url}/", timeout=PATIENCE) as response:  # noqa: S310
                assert b"<html" in response.read()
            assert "/api/v1/watch/{name}" in server.reader.request("GET", "/api/v1/openapi.json")["paths"]


VANISHING = """
import countless, time
client = countless.connect(site="lost")
client.counter("hits").add(4)
print(client.flush(20), flush=True)
time.sleep(60)
"""


def test_a_site_that_vanishes_without_a_word_falls_silent(tmp_path: Path) -> None:
    with node(tmp_path / "broker") as broker, Coordinator(tmp_path, broker.url, "--silent-after", "200ms") as server:
        program = python(VANISHING, broker.url)
        assert program.stdout is not None
        assert program.stdout.readline() == "True\n"
        program.kill()  # the broker tells nobody
        program.communicate()
        until(lambda: [site["state"] for site in server.sites()] == ["silent"], "silence")
        until(lambda: server.answer("hits")["state"] == "degraded", "everybody can see it")
        assert server.known("hits") == 4


def test_a_coordinator_is_killed_under_load_and_another_is_added(
    broker: Node, pair: tuple[Coordinator, Coordinator]
) -> None:
    one, two = pair
    counters = spread("killed")
    counting = [ExactSum(broker.url, f"site {number}", counters) for number in range(3)]
    for name in counters:
        until(lambda: two.answer(name), "a first answer")  # noqa: B023
    both_have_some(pair)
    reading = [Reading(pair, name) for name in (min(has(one)), min(has(two)))]
    one.kill()
    died = monotonic()
    until(lambda: has(two) >= set(counters), "the other has everything")
    assert monotonic() - died < PATIENCE
    assert all(each.client.flush(20) for each in counting)
    one.start()  # a coordinator is added, and counters move to it while everybody counts
    both_have_some(pair)
    assert all(each.client.flush(20) for each in counting)
    two.stop()  # in good order, and everything moves back
    until(lambda: has(one) >= set(counters), "the first has everything")
    two.start()
    total = sum(each.stop() for each in counting)
    for each in reading:
        each.stop()
    for name in counters:
        assert one.known(name) == two.known(name) == total
    require_fenced(broker.url, SHARDS)


def test_a_coordinator_that_was_asleep_says_nothing_when_it_wakes(
    broker: Node, pair: tuple[Coordinator, Coordinator]
) -> None:
    (one, two), counters = pair, spread("asleep")
    with countless.connect(broker.url, site="a") as client:
        for name in counters:
            client.counter(name).add(10)
        assert client.flush(20)
        both_have_some(pair)
        mine = until(lambda: has(one) & set(counters), "some of them at the first")
        reading = Reading(pair, min(mine))
        one.process.send_signal(signal.SIGSTOP)
        for name in counters:  # also to the one that sleeps: its socket takes it in
            client.counter(name).add(5)
        until(lambda: has(two) >= mine, "the other has everything")
        assert client.flush(20)
        until(lambda: all(two.answer(name)["estimate"] == 15 for name in mine), "everything counted")
        spy = NatsSocket(Broker.parse(broker.url), Broker.parse(broker.url).nodes[0])
        spy.listen("countless.down.>")
        one.process.send_signal(signal.SIGCONT)
        # The site is silent for a while, so nobody has a reason to speak until the one that is back gets its share.
        words: list[bytes] = []
        while not words:
            assert select.select([spy.socket], [], [], PATIENCE)[0]
            words = [delivery.payload for delivery in spy.receive()]
        assert decode_downlink(words[0]) == StreamClosed("moved to another coordinator")
        spy.drop()
        both_have_some(pair)
        assert client.flush(20)
        reading.stop()
    assert all(one.known(name) == two.known(name) == 15 for name in mine)
    require_fenced(broker.url, SHARDS)


FORKING = """
import countless, os, sys
client = countless.connect(site="prefork")
hits = client.counter("forked")
hits.add(10)
client.flush(20)
children = []
for n in (100, 200):
    pid = os.fork()
    if not pid:
        hits.add(n)
        sys.exit(0)
    children.append(pid)
hits.add(1)
codes = [os.waitpid(pid, 0)[1] for pid in children]
hits.add(1)
print(codes, client.close(20))
"""


def test_children_count_for_themselves(broker: Node, pair: tuple[Coordinator, Coordinator]) -> None:
    output, _ = python(FORKING, broker.url).communicate(timeout=60)
    assert output == "[0, 0] True\n"
    assert pair[0].known("forked") == 312
    until(lambda: pair[0].sites() == [], "every goodbye has arrived")


def test_the_broker_is_killed_and_comes_back(broker: Node, pair: tuple[Coordinator, Coordinator]) -> None:
    counting = [ExactSum(broker.url, f"site {number}", ["brokered"]) for number in range(2)]
    until(lambda: pair[0].answer("brokered"), "a first answer")
    reading = Reading(pair, "brokered")
    broker.kill()
    until(lambda: all(each.client.last_error for each in counting), "everybody notices")
    broker.start()
    assert all(each.client.flush(20) for each in counting)
    total = sum(each.stop() for each in counting)
    reading.stop()
    assert pair[1].known("brokered") == total
    require_fenced(broker.url, SHARDS)


PERMISSIONS = """
tls {{ cert_file: "{cert}", key_file: "{key}" }}
authorization {{ users: [
    {{ user: coordinator, password: "c0", permissions: {{
        publish: ["countless.>", "_INBOX.>", "$JS.API.>", "$KV.countless.>"]
        subscribe: ["countless.up.>", "countless.shards", "countless.http.*", "_INBOX.>"]
    }} }}
    {{ user: site, password: "s0", permissions: {{
        publish: ["countless.shards", "countless.up.*.web-1.>"]
        subscribe: ["countless.down.*.web-1.>", "countless.call.*", "countless.round.>"]
    }} }}
] }}
"""


def test_tls_passwords_and_permissions_are_the_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    machine = authority.issue_cert("127.0.0.1")
    pem = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(pem["ca"])
    machine.cert_chain_pems[0].write_to_path(pem["cert"])
    machine.private_key_pem.write_to_path(pem["key"])
    monkeypatch.setenv("COUNTLESS_CA", pem["ca"])
    config = PERMISSIONS.format(**pem)
    with node(tmp_path / "broker", config, login="coordinator:c0@", scheme="tls") as broker:
        address = broker.url.rpartition("@")[2]
        with Coordinator(tmp_path / "one", broker.url, shards=2) as server:
            with countless.connect(f"tls://site:s0@{address}", site="web-1") as site:
                site.counter("hits").add(5)
                assert site.flush(20)
            until(lambda: server.inspect("hits")["known"] == 5, "nobody else was heard")
            for url, name, complaint in (
                (f"tls://site:wrong@{address}", "web-1", "Authorization Violation"),
                (f"tls://site:s0@{address}", "web-2", "Permissions Violation"),  # of another site
            ):
                with countless.connect(url, site=name) as stranger:
                    stranger.counter("hits").add()
                    until(lambda: complaint in str(stranger.last_error), complaint)  # noqa: B023
                    stranger.close(0.1)
            token = change_tokens(broker.url, lambda store: new_token(store, "read", "page"))
            reader = ApiClient(server.url, token)
            until(lambda: reader.answer("hits")["estimate"] == 5, "the token is known")
            with pytest.raises(countless.CountlessError, match="scope operator"):
                reader.request("GET", "/api/v1/operator/hits")
            with pytest.raises(countless.CountlessError, match="scope read"):
                server.answer("hits")
            assert change_tokens(broker.url, lambda store: store.revoke("page")) == 1
            monkeypatch.delenv("COUNTLESS_CA")
            with countless.connect(f"tls://site:s0@{address}", site="web-1") as stranger:
                stranger.counter("hits").add()
                until(lambda: "certificate" in str(stranger.last_error).lower(), "a complaint")
                stranger.close(0.1)
            until(lambda: server.inspect("hits")["known"] == 5, "nobody else was heard")
