"""Mistakes of a program that would pass in silence are refused, and change nothing."""

import pytest

import countless
from countless.agent.statsd import StatsdCount, parse
from countless.errors import InvalidParameter
from support.local_counters import counts_of


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> countless.Client:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    return countless.connect()


@pytest.mark.parametrize("value", [None, 1.5, True, b"a"])
def test_value_of_a_label_is_a_string_or_an_integer(client: countless.Client, value: object) -> None:
    with pytest.raises(InvalidParameter, match=r"user = .* is not allowed: user must be a string or an integer"):
        client.counter("requests").labels(user=value)  # type: ignore[arg-type]
    assert not [name for name in counts_of(client) if "{" in name]


def test_name_of_a_label_is_one_that_the_agent_takes(client: countless.Client) -> None:
    with pytest.raises(InvalidParameter, match=r"label must be letters, digits, '_', '.', '/' and '-'"):
        client.counter("requests").labels(**{"user id": "7"})


@pytest.mark.parametrize("name", ["page views", "größe", "a/b", ".hidden", "-x", "a@b#c"])
def test_agent_counts_every_name_of_a_program_that_its_lines_can_carry(client: countless.Client, name: str) -> None:
    client.counter(name)
    assert parse(f"{name}:1|c".encode()) == StatsdCount(name, (), 10**18)


@pytest.mark.parametrize("name", ["a:b", "a|b", "a,t=v", "a;t=v", "a[t]", 'a{t="v"}', "a\n"])
def test_name_that_the_agent_drops_is_refused(client: countless.Client, name: str) -> None:
    for make in (client.counter, client.distribution):
        with pytest.raises(InvalidParameter, match="printable characters, and none of , : ;"):
            make(name)
    assert not isinstance(parse(f"{name}:1|c".encode()), StatsdCount)


def test_labels_of_a_series_are_given_in_one_call(client: countless.Client) -> None:
    """The name of a second series would have two groups of labels, and the sum of the counter would not have it."""
    for counter in (client.counter("requests"), client.counter("tenants", family=True)):
        series = counter.labels(route="/cart")
        with pytest.raises(InvalidParameter, match="has labels already: give all of them in one call of labels"):
            series.labels(status="200")
        assert series.labels() is series


def test_client_says_as_what_the_program_used_a_name_before(client: countless.Client) -> None:
    client.counter("requests")
    with pytest.raises(InvalidParameter, match="this program counts 'requests' as a counter already: a family needs"):
        client.counter("requests", family=True)
    client.distribution("ms")
    with pytest.raises(InvalidParameter, match=r"'ms' as a distribution with epsilon=.*, accuracy=.*: use the same"):
        client.distribution("ms", accuracy=0.1)


@pytest.mark.parametrize("text", ["true", "yes", "2"])
def test_client_is_disabled_by_1_only(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("COUNTLESS_DISABLE", text)
    with pytest.raises(InvalidParameter, match="COUNTLESS_DISABLE must be 1, or 0 for a client that counts"):
        countless.connect()


@pytest.mark.parametrize("over", [15, 15.0, "15", "", True, None])
def test_rolling_count_and_rate_need_a_unit(client: countless.Client, over: object) -> None:
    for read in (client.rolling, client.rate):
        with pytest.raises(InvalidParameter, match="over must be a duration with its unit, such as 30s"):
            read("requests", over)  # type: ignore[arg-type]


@pytest.mark.parametrize("sites", [0, -1])
def test_tracker_without_sites_is_a_mistake(sites: int) -> None:
    with pytest.raises(InvalidParameter, match=r"sites must be at least 1; .* begins with"):
        countless.Tracker(sites=sites)
