"""`client.counter(name, per=...)` without a coordinator: names, calendars, labels, files and forks."""

from collections.abc import Iterator
from pathlib import Path
from threading import enumerate as enumerate_threads

import pytest

import countless
from countless.client.client import Client
from countless.client.durable.count_file import CountFile
from countless.client.surroundings import REAL
from countless.client.transport.endpoint import Endpoint
from countless.errors import InvalidParameter
from countless.wire.keys import Key
from support.local_counters import counts_of
from support.service import TIMEOUT_S

HOUR = 490_123  # by its number


class Clock:
    """A wall clock that the test sets."""

    def __init__(self) -> None:
        self.now = HOUR * 3600.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(clock: Clock, unused_url: str) -> Iterator[Client]:
    client = Client(Endpoint.parse(unused_url), None, "here", surroundings=REAL._replace(wall_clock=clock))
    yield client
    client.close(0)


def test_counter_with_windows_is_the_same_object_for_the_same_calendar(client: Client) -> None:
    hits = client.counter("hits", per="hour")
    assert hits is client.counter("hits", per="hour", tz="UTC", anchor=0)
    assert hits is client.counter("hits", per="hour", label_cap=7)
    assert client.counter("plain") is client.counter("plain", per=None, tz="UTC")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "per = None .* must be 'hour', as when this program first used the counter 'hits'"),
        ({"per": "day"}, "per = 'day'"),
        ({"per": "hour", "tz": "Asia/Kolkata"}, "tz = 'Asia/Kolkata' .* must be 'UTC'"),
        ({"per": "hour", "anchor": 5}, "anchor = 5 .* must be 0"),
        ({"per": "hour", "anchor": 60}, "anchor = 60 .* 0 to 59"),
        ({"per": "year"}, "per = 'year'"),
        ({"tz": "Europe/Berlin"}, r"^tz can't be used for a counter without windows \(per\)"),
    ],
)
def test_counter_with_another_calendar_is_refused(client: Client, arguments: dict[str, object], message: str) -> None:
    hits = client.counter("hits", per="hour")
    with pytest.raises(InvalidParameter, match=message):
        client.counter("hits", **arguments)  # type: ignore[arg-type]
    assert hits is client.counter("hits", per="hour")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per": "year"}, "per = 'year'"),
        ({"per": "day", "tz": "Nowhere/Town"}, "tz = 'Nowhere/Town'"),
        ({"per": "month", "anchor": 0}, "anchor = 0 .* 1 to 31"),
        ({"anchor": 1}, "^anchor can't be used for"),
    ],
)
def test_invalid_calendar_is_refused_and_changes_nothing(
    client: Client, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        client.counter("hits", **arguments)  # type: ignore[arg-type]
    client.counter("hits", per="hour").add()
    assert counts_of(client) == {f"hits@hour:{HOUR}": 1}


@pytest.mark.parametrize("name", ["hits@hour:5", "hits@hour", "a@day,Europe/Berlin,6", "x" * 490])
def test_name_that_windows_cannot_have_is_refused(client: Client, name: str) -> None:
    with pytest.raises(InvalidParameter, match="counter = "):
        client.counter(name, per="hour").add()
    assert counts_of(client) == {}


def test_events_are_counted_by_the_clock_of_the_process_and_labels_inherit_the_windows(
    client: Client, clock: Clock
) -> None:
    hits = client.counter("hits", per="hour", label_cap=1)
    hits.add(2)
    hits.labels(route="/a").inc()
    clock.now += 3599.9
    hits.inc()
    clock.now += 0.1
    hits.labels(route="/a").add(5)
    hits.labels(route="/b").add(7)
    assert counts_of(client) == {
        f"hits@hour:{HOUR}": 3,
        f'hits{{route="/a"}}@hour:{HOUR}': 1,
        f'hits{{route="/a"}}@hour:{HOUR + 1}': 5,
        f'hits{{overflow="true"}}@hour:{HOUR + 1}': 7,
    }
    assert (hits.count, hits.labels(route="/a").count) == (0, 5)
    assert repr(hits.labels(route="/a")) == "<Counter 'hits{route=\"/a\"}': 5 counted here>"


def test_counter_that_counts_nothing_leaves_nothing_behind(client: Client) -> None:
    client.counter("hits", per="hour").labels(route="/a")
    assert counts_of(client) == {}
    assert client.close(0)


def test_add_after_close_is_refused(client: Client) -> None:
    hits = client.counter("hits", per="hour")
    hits.add(3)
    assert not client.close(0)
    with pytest.raises(InvalidParameter, match="has not been closed"):
        hits.add()
    assert counts_of(client) == {f"hits@hour:{HOUR}": 3}


def test_disabled_client_keeps_one_count_for_all_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    with countless.connect(site="here") as client:
        hits = client.counter("hits", per="minute")
        hits.add(3)
        assert (hits.count, counts_of(client)) == (3, {"hits": 3})


def files(directory: Path) -> list[dict[str, int]]:
    """The counts in the files that are not locked."""
    found = [CountFile.open_orphan(path) for path in sorted(directory.glob("*.counts"))]
    counts = [
        {str(key): record.count for key, record in file.records(Key).items()} for file in found if file is not None
    ]
    for file in found:
        if file is not None:
            file.release()
    return counts


def test_windows_of_a_killed_process_are_in_its_file(clock: Clock, unused_url: str, tmp_path: Path) -> None:
    client = Client(Endpoint.parse(unused_url), None, "here", tmp_path, surroundings=REAL._replace(wall_clock=clock))
    hits = client.counter("hits", per="hour")
    hits.add(3)
    hits.inc()
    clock.now += 3600
    hits.inc()
    assert not client.close(0)  # as a process that ends, it releases its file
    assert files(tmp_path) == [{f"hits@hour:{HOUR}": 4, f"hits@hour:{HOUR + 1}": 1}]


@pytest.mark.parametrize("durable", [False, True])
def test_forked_child_counts_windows_of_its_own(
    clock: Clock, unused_url: str, tmp_path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "_start", lambda self: None)  # a forked child has no threads
    client = Client(
        Endpoint.parse(unused_url),
        None,
        "here",
        tmp_path if durable else None,
        surroundings=REAL._replace(wall_clock=clock),
    )
    hits = client.counter("hits", per="hour")
    client.counter("plain").add(9)
    hits.add(3)
    clock.now += 3600
    hits.add(4)
    for thread in enumerate_threads():
        if thread.name == "countless-recovery":  # no child has it: it would open the file of the parent
            thread.join(TIMEOUT_S)
    with client._lock:
        client._after_fork()
    assert counts_of(client) == {"plain": 0}
    hits.inc()
    hits.add(5)
    clock.now -= 3600
    hits.add(2)  # the child has finished nothing
    of_child = {"plain": 0, f"hits@hour:{HOUR}": 2, f"hits@hour:{HOUR + 1}": 6}
    assert counts_of(client) == of_child
    assert not client.close(0)
    if durable:
        of_parent = {"plain": 9, f"hits@hour:{HOUR}": 3, f"hits@hour:{HOUR + 1}": 4}
        assert sorted(files(tmp_path), key=str) == sorted([of_parent, of_child], key=str)
