"""Names, labels, the cap on labels, and endpoints."""

import pytest

from countless.client.counter import Counter
from countless.client.local_counter import LocalCounter
from countless.client.transport.endpoint import Endpoint
from countless.core.messages import SiteId
from countless.core.site import Site
from countless.errors import InvalidParameter
from countless.randomness import SeededRandom
from support.local_counters import unreported


class LocalCounters:
    """Local counters by name, as a client keeps them."""

    def __init__(self) -> None:
        self.by_name: dict[str, LocalCounter] = {}

    def __call__(self, name: str) -> LocalCounter:
        return self.by_name.setdefault(name, unreported(Site(name, SiteId("here"), SeededRandom(1))))

    def counts(self) -> dict[str, int]:
        return {name: counter.count for name, counter in self.by_name.items() if counter.count}


def test_each_combination_of_labels_is_a_series_in_any_order() -> None:
    locals_ = LocalCounters()
    hits = Counter("hits", locals_)
    hits.add(2)
    hits.labels(route="/a", code="200").inc()
    hits.labels(code="200", route="/a").add(4)
    assert locals_.counts() == {"hits": 2, 'hits{code="200",route="/a"}': 5}
    assert hits.labels() is hits


def test_series_beyond_the_cap_are_counted_in_the_overflow_series() -> None:
    locals_ = LocalCounters()
    hits = Counter("hits", locals_, cap=3)
    for user in range(10):
        hits.labels(user=str(user)).inc()
    hits.labels(user="0").inc()
    assert sum(locals_.counts().values()) == 11
    assert locals_.counts()['hits{overflow="true"}'] == 7
    assert len(locals_.counts()) == 4
    assert hits.overflow_count == 7


@pytest.mark.parametrize("labels", [{"a": "x" * 600}, {"a": "\x00"}])
def test_invalid_labels_are_refused_and_change_nothing(labels: dict[str, str]) -> None:
    locals_ = LocalCounters()
    with pytest.raises(InvalidParameter):
        Counter("hits", locals_).labels(**labels)
    assert locals_.counts() == {}


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
def test_endpoint_is_parsed_from_urls(url: str, base: str) -> None:
    assert Endpoint.parse(url).base == base


@pytest.mark.parametrize("url", ["", "http://", "ftp://x", "http://x:port", "http://x/path", "http://u@x", 7])
def test_invalid_endpoint_is_refused(url: str) -> None:
    with pytest.raises(InvalidParameter, match="url"):
        Endpoint.parse(url)
