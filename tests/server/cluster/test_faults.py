"""Coordinators behind a real broker are killed, paused, stopped and added while sites count.

Afterwards totals are exact. No read ever returns a smaller total than an earlier one. No fenced coordinator writes.
"""

import json
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trustme

import countless
from countless.client.api import ApiClient
from countless.client.transport.nats_socket import NatsSocket
from countless.server.cluster.tokens import change_tokens
from countless.server.tokens import new_token
from countless.wire.keys import COUNTER, Key
from countless.wire.nats_subjects import StreamClosed, decode_downlink, shard_of
from countless.wire.nats_url import Broker
from support.nats import Coordinator, LoadClient, Node, PollingReader, node, require_fenced
from support.service import TIMEOUT_S, python, until

pytestmark = pytest.mark.slow

SHARDS = 4
SPREAD = ["n0", "n1", "n2", "n3", "n4", "n6"]


@pytest.fixture(scope="module")
def pair(broker: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Coordinator, Coordinator]]:
    directory = tmp_path_factory.mktemp("coordinators")
    with Coordinator(directory / "one", broker.url) as one, Coordinator(directory / "two", broker.url) as two:
        yield one, two


def one_counter_per_shard(prefix: str) -> list[str]:
    found: dict[int, str] = {}
    for number in range(1000):
        name = f"{prefix}-{number}"
        found.setdefault(shard_of(Key(COUNTER, name), SHARDS), name)
    return [found[shard] for shard in range(SHARDS)]


def wait_until_both_own_counters(pair: tuple[Coordinator, Coordinator]) -> None:
    def both_own_some() -> bool:
        one, two = (server.owned_counters() for server in pair)
        return bool(one and two and not one & two)

    until(both_own_some, "counters at both")


def test_each_coordinator_answers_for_every_counter(broker: Node, pair: tuple[Coordinator, Coordinator]) -> None:
    assert {shard_of(Key(COUNTER, name), SHARDS) for name in SPREAD} == set(range(SHARDS))
    with countless.connect(broker.url, site="web.1") as a, countless.connect(broker.url, site="web 2") as b:
        for number, name in enumerate(SPREAD):
            a.counter(name).add(10 + number)
            b.counter(name).labels(route="/ä").inc()
        assert a.flush(TIMEOUT_S)
        assert b.flush(TIMEOUT_S)
        wait_until_both_own_counters(pair)
        for server in pair:
            until(lambda: server.answer(SPREAD[-1])["state"] == "exact", "an exact answer")  # noqa: B023
            assert [server.answer(name)["estimate"] for name in SPREAD] == [11, 12, 13, 14, 15, 16]  # with the series
            assert set(server.answer("n0")) == {"counter", "estimate", "lower", "upper", "state", "as_of", "per"}
            assert [view["counter"] for view in server.reader.counters()] == sorted(
                [*SPREAD, *(f'{name}{{route="/ä"}}' for name in SPREAD)]
            )
            assert server.inspect("n0")["known"] == 11
            assert {site["site"] for site in server.sites()} == {"web.1", "web 2"}
            with pytest.raises(countless.CountlessError, match="no counter 'unknown'"):
                server.answer("unknown")
        elsewhere = next(iter(pair[0].owned_counters() & set(SPREAD)))
        watch = pair[1].reader.watch(elsewhere)
        first = next(watch)["estimate"]
        a.counter(elsewhere).add(5)
        assert next(watch)["estimate"] == first + 5
        watch.close()
        pair[0].reader.request("POST", "/api/v1/counters", {"name": "made", "alpha": 0.2})
        assert pair[1].inspect("made")["alpha"] == 0.2
        pair[1].reader.request("DELETE", "/api/v1/counters/made")
    until(lambda: pair[0].sites() == [], "all streams closed")
    require_fenced(broker.url, SHARDS)


def first_page_event(server: Coordinator, query: str, event: str) -> dict[str, Any]:
    with urlopen(f"{server.url}/page/feed?{query}", timeout=TIMEOUT_S) as response:  # noqa: S310
        for line in response:
            if line == f"event: {event}\n".encode():
                found: dict[str, Any] = json.loads(next(response).removeprefix(b"data: "))
                return found
    raise AssertionError(f"no {event}")


def test_page_shows_the_counters_that_its_coordinator_owns(broker: Node, pair: tuple[Coordinator, Coordinator]) -> None:
    counters = one_counter_per_shard("page")
    with countless.connect(broker.url, site="shown") as client:
        before = client.connected
        for name in counters:
            client.counter(name).add(3)
        assert client.flush(TIMEOUT_S)
        assert (before, client.connected) == (False, True)

        def owned(server: Coordinator) -> set[str]:
            return server.owned_counters() & set(counters)

        until(lambda: all(len(owned(server)) == SHARDS // 2 for server in pair), "half of the counters at each")
        for server in pair:
            mine = owned(server)
            listed = first_page_event(server, "find=page-", "list")["rows"]
            assert {row["counter"] for row in listed} == mine
            one = min(mine)
            sites = first_page_event(server, f"counter={one}", "sites")["rows"]
            assert [row[:2] for row in sites] == [["shown", "connected"]]
            with urlopen(f"{server.url}/", timeout=TIMEOUT_S) as response:  # noqa: S310
                assert b"<html" in response.read()
            assert "/api/v1/watch/{name}" in server.reader.request("GET", "/api/v1/openapi.json")["paths"]


VANISHING = """
import countless, time
client = countless.connect(site="lost")
client.counter("hits").add(4)
print(client.flush(90), flush=True)
time.sleep(60)
"""


def test_killed_site_is_reported_silent_and_its_count_stays(tmp_path: Path) -> None:
    with node(tmp_path / "broker") as broker, Coordinator(tmp_path, broker.url, "--silent-after", "200ms") as server:
        program = python(VANISHING, broker.url)
        assert program.stdout is not None
        assert program.stdout.readline() == "True\n"
        program.kill()  # the broker does not report it
        program.communicate()
        until(lambda: [site["state"] for site in server.sites()] == ["silent"], "a silent site")
        until(lambda: server.answer("hits")["state"] == "degraded", "a degraded answer")
        assert server.known("hits") == 4


@pytest.mark.soak
def test_totals_stay_exact_when_a_coordinator_is_killed_added_and_stopped(
    broker: Node, pair: tuple[Coordinator, Coordinator]
) -> None:
    one, two = pair
    counters = one_counter_per_shard("killed")
    load = [LoadClient(broker.url, f"site {number}", counters) for number in range(3)]
    for name in counters:
        until(lambda: two.answer(name), "a first answer")  # noqa: B023
    wait_until_both_own_counters(pair)
    readers = [PollingReader(pair, min(server.owned_counters())) for server in pair]
    moving = min(one.owned_counters() & set(counters))
    watch = two.reader.watch(moving)
    before = next(watch)["estimate"]
    one.kill()
    until(lambda: two.owned_counters() >= set(counters), "all counters at the second")
    until(lambda: next(watch)["estimate"] > before, "the watch continues after the take-over")
    watch.close()
    assert all(each.client.flush(TIMEOUT_S) for each in load)
    one.start()  # counters move to it while sites count
    wait_until_both_own_counters(pair)
    assert all(each.client.flush(TIMEOUT_S) for each in load)
    two.stop()
    until(lambda: one.owned_counters() >= set(counters), "all counters at the first")
    two.start()
    total = sum(each.stop() for each in load)
    for reader in readers:
        reader.stop()
    for name in counters:
        assert one.known(name) == two.known(name) == total
    require_fenced(broker.url, SHARDS)


def test_paused_coordinator_sends_nothing_after_it_lost_its_shards(
    broker: Node, pair: tuple[Coordinator, Coordinator]
) -> None:
    (one, two), counters = pair, one_counter_per_shard("paused")
    with countless.connect(broker.url, site="a") as client:
        for name in counters:
            client.counter(name).add(10)
        assert client.flush(TIMEOUT_S)
        wait_until_both_own_counters(pair)
        mine = until(lambda: one.owned_counters() & set(counters), "some of them at the first")
        reader = PollingReader(pair, min(mine))
        one.process.send_signal(signal.SIGSTOP)
        for name in counters:  # also to the paused one: its socket buffers it
            client.counter(name).add(5)
        until(lambda: two.owned_counters() >= mine, "all of them at the second")
        assert client.flush(TIMEOUT_S)
        until(lambda: all(two.answer(name)["estimate"] == 15 for name in mine), "everything counted")
        spy = NatsSocket(Broker.parse(broker.url), Broker.parse(broker.url).nodes[0])
        spy.subscribe("countless.down.>")
        one.process.send_signal(signal.SIGCONT)
        # The site sends nothing for a while, so the first frame is due when the resumed coordinator gets its share.
        frames: list[bytes] = []
        while not frames:
            assert select.select([spy.socket], [], [], TIMEOUT_S)[0]
            frames = [delivery.payload for delivery in spy.receive()]
        assert decode_downlink(frames[0]) == StreamClosed("moved to another coordinator")
        spy.abandon()
        wait_until_both_own_counters(pair)
        assert client.flush(TIMEOUT_S)
        reader.stop()
    assert all(one.known(name) == two.known(name) == 15 for name in mine)
    require_fenced(broker.url, SHARDS)


FORKING = """
import countless, os, sys
client = countless.connect(site="prefork")
hits = client.counter("forked")
hits.add(10)
client.flush(90)
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
print(codes, client.close(90))
"""


def test_forked_children_are_sites_of_their_own(broker: Node, pair: tuple[Coordinator, Coordinator]) -> None:
    output, _ = python(FORKING, broker.url).communicate(timeout=TIMEOUT_S)
    assert output == "[0, 0] True\n"
    assert pair[0].known("forked") == 312
    until(lambda: pair[0].sites() == [], "all streams closed")


def test_totals_stay_exact_when_the_broker_is_killed_and_restarted(
    broker: Node, pair: tuple[Coordinator, Coordinator]
) -> None:
    load = [LoadClient(broker.url, f"site {number}", ["brokered"]) for number in range(2)]
    until(lambda: pair[0].answer("brokered"), "a first answer")
    reader = PollingReader(pair, "brokered")
    broker.kill()
    until(lambda: all(each.client.last_error for each in load), "lost connections")
    broker.start()
    assert all(each.client.flush(TIMEOUT_S) for each in load)
    total = sum(each.stop() for each in load)
    reader.stop()
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
        subscribe: ["countless.down.*.web-1.>", "countless.call.*"]
    }} }}
] }}
"""


def test_broker_enforces_tls_passwords_and_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        with Coordinator(tmp_path / "one", broker.url, shards=2, closed=True) as server:
            with countless.connect(f"tls://site:s0@{address}", site="web-1") as site:
                site.counter("hits").add(5)
                assert site.flush(TIMEOUT_S)
            until(lambda: server.inspect("hits")["known"] == 5, "the count of the permitted site only")
            for url, name, error in (
                (f"tls://site:wrong@{address}", "web-1", "Authorization Violation"),
                (f"tls://site:s0@{address}", "web-2", "Permissions Violation"),  # of another site
            ):
                with countless.connect(url, site=name) as refused:
                    refused.counter("hits").add()
                    until(lambda: error in str(refused.last_error), error)  # noqa: B023
                    refused.close(0.1)
            token = change_tokens(broker.url, lambda store: new_token(store, "read", "page"))
            reader = ApiClient(server.url, token)
            until(lambda: reader.answer("hits")["estimate"] == 5, "the token is known")
            with pytest.raises(countless.CountlessError, match="scope operator"):
                reader.request("GET", "/api/v1/operator/hits")
            with pytest.raises(countless.CountlessError, match="scope read"):
                ApiClient(server.url).answer("hits")
            watch = reader.watch("hits", TIMEOUT_S)
            assert change_tokens(broker.url, lambda store: store.revoke("page")) == 1
            assert {answer["estimate"] for answer in watch} == {5}  # then the stream ends
            monkeypatch.delenv("COUNTLESS_CA")
            with countless.connect(f"tls://site:s0@{address}", site="web-1") as refused:
                refused.counter("hits").add()
                until(lambda: "certificate" in str(refused.last_error).lower(), "a certificate error")
                refused.close(0.1)
            until(lambda: server.inspect("hits")["known"] == 5, "the count of the permitted site only")
