"""The client without a coordinator: it counts, does not block, does not raise, and can be switched off."""

import socket
from collections.abc import Iterator
from threading import Thread
from time import monotonic

import pytest

import countless
from countless.core.messages import Address, Repace
from countless.core.paces import Every
from countless.core.site import Site
from countless.errors import InvalidParameter
from countless.randomness import SeededDice
from support.meters import unheard


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where somebody listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_counting_goes_on_without_a_coordinator(nobody: str) -> None:
    client = countless.connect(nobody, site="here")
    hits = client.counter("hits")
    start = monotonic()

    def work() -> None:
        for _ in range(5_000):
            hits.add()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hits.add(7)
    assert monotonic() - start < 10
    assert hits.count == 20_007
    assert not client.flush(0.01)
    assert not client.close(0.01)
    with pytest.raises(InvalidParameter, match="not been removed"):
        hits.add(2)


def test_nothing_happens_until_something_is_counted() -> None:
    client = countless.connect("http://127.0.0.1:9", site="here")
    client.counter("hits")
    assert client.flush(0)
    assert client.close(0)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    client = countless.connect("http://127.0.0.1:9")
    for _ in range(100):
        client.counter("hits").labels(route="/a").inc()
    assert client.flush(0)
    assert client.close(0)
    assert client.trouble is None


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_URL", "http://192.0.2.1:77")
    monkeypatch.setenv("COUNTLESS_SITE", "web-1")
    client = countless.connect()
    assert (client.place.base, client.site) == ("http://192.0.2.1:77", "web-1")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 501, 7])
def test_names_that_cannot_travel_are_refused(name: str) -> None:
    with pytest.raises(InvalidParameter, match="counter"):
        countless.connect("http://127.0.0.1:9").counter(name)


@pytest.mark.parametrize("n", [-1, 1.5, True, "1", None])
def test_what_cannot_be_counted_is_refused_and_changes_nothing(n: int) -> None:
    hits = countless.connect("http://127.0.0.1:9").counter("hits")
    with pytest.raises(InvalidParameter):
        hits.add(n)
    assert hits.count == 0


def site_with(count: int) -> Site:
    return Site("hits", Address("here", 2), SeededDice(1), count=count)


@pytest.mark.parametrize(("settled", "rest"), [(None, 0), (0, 30), (12, 18), (30, 0)])
def test_another_life_begins_with_what_was_not_settled(settled: int | None, rest: int) -> None:
    meter = unheard(Site("hits", Address("here", 1), SeededDice(1)))
    meter.add(20)
    for _ in range(10):
        meter.add()
    meter.reborn(site_with, settled)
    assert meter.count == rest
    meter.add()
    meter.add(5)
    assert meter.count == rest + 6
    hello, _ = meter.hello()
    assert (hello.round, hello.count) == (0, rest + 6)
    assert meter.receive(Repace("hits", 3, Every(2), 0)) != ()
    assert meter.close().count == rest + 6
    assert meter.hello()[0].count == rest + 6
    meter.reborn(site_with, 0)  # told to begin again while it says its last words
    assert meter.hello()[0].count == rest + 6
