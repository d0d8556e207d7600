"""Names, labels, and the cap on them."""

import pytest

from countless.client.counter import Counter
from countless.client.local_counter import LocalCounter
from countless.client.transport.websocket import Endpoint
from countless.core.messages import SiteId
from countless.core.site import Site
from countless.errors import InvalidParameter
from countless.randomness import SeededRandom
from countless.wire.names import series_name
from support.meters import unheard


class Shelf:
    """Meters by name, as a client keeps them."""

    def __init__(self) -> None:
        self.meters: dict[str, LocalCounter] = {}

    def __call__(self, name: str) -> LocalCounter:
        return self.meters.setdefault(name, unheard(Site(name, SiteId("here"), SeededRandom(1))))

    def counts(self) -> dict[str, int]:
        return {name: meter.count for name, meter in self.meters.items() if meter.count}


def test_labels_are_series_of_their_own_in_any_order() -> None:
    shelf = Shelf()
    hits = Counter("hits", shelf)
    hits.add(2)
    hits.labels(route="/a", code="200").inc()
    hits.labels(code="200", route="/a").add(4)
    assert shelf.counts() == {"hits": 2, 'hits{code="200",route="/a"}': 5}
    assert hits.labels() is hits


def test_values_are_escaped() -> None:
    assert series_name("hits", {"a": 'x"y\\z\n'}) == 'hits{a="x\\"y\\\\z\\n"}'


def test_beyond_the_cap_everything_is_counted_in_one_series() -> None:
    shelf = Shelf()
    hits = Counter("hits", shelf, cap=3)
    for user in range(10):
        hits.labels(user=str(user)).inc()
    hits.labels(user="0").inc()
    assert sum(shelf.counts().values()) == 11
    assert shelf.counts()['hits{overflow="true"}'] == 7
    assert len(shelf.counts()) == 4
    assert hits.overflow_count == 7


@pytest.mark.parametrize("labels", [{"a": "x" * 600}, {"a": "\x00"}])
def test_labels_that_cannot_travel_are_refused_and_change_nothing(labels: dict[str, str]) -> None:
    shelf = Shelf()
    with pytest.raises(InvalidParameter):
        Counter("hits", shelf).labels(**labels)
    assert shelf.counts() == {}


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:2686", "http://127.0.0.1:2686"),
        ("ws://example.org", "http://example.org:2686"),
        ("wss://example.org", "https://example.org:443"),
        ("example.org:99", "http://example.org:99"),
        ("http://[::1]:5/", "http://[::1]:5"),
    ],
)
def test_addresses(url: str, base: str) -> None:
    assert Endpoint.parse(url).base == base


@pytest.mark.parametrize("url", ["", "http://", "ftp://x", "http://x:port", "http://x/path", "http://u@x", 7])
def test_strange_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidParameter, match="url"):
        Endpoint.parse(url)
