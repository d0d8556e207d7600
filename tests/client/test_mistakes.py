"""Mistakes of a program that would pass in silence are refused, and change nothing."""

import pytest

import countless
from countless.agent.statsd import Sample, parse
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
    assert parse(f"{name}:1|c".encode()) == Sample(name, (), 10**18)


@pytest.mark.parametrize("name", ["a:b", "a|b", "a,t=v", "a;t=v", "a[t]", 'a{t="v"}', "a\n"])
def test_name_that_the_agent_drops_is_refused(client: countless.Client, name: str) -> None:
    for make in (client.counter, client.distribution):
        with pytest.raises(InvalidParameter, match="printable characters, and none of , : ;"):
            make(name)
    assert not isinstance(parse(f"{name}:1|c".encode()), Sample)


@pytest.mark.parametrize("over", [15, 15.0, "15", "", True, None])
def test_rolling_count_and_rate_need_a_unit(client: countless.Client, over: object) -> None:
    for read in (client.rolling, client.rate):
        with pytest.raises(InvalidParameter, match="over must be a duration with its unit, such as 30s"):
            read("requests", over)  # type: ignore[arg-type]


@pytest.mark.parametrize("sites", [0, -1])
def test_tracker_without_sites_is_a_mistake(sites: int) -> None:
    with pytest.raises(InvalidParameter, match=r"sites must be at least 1; .* begins with"):
        countless.Tracker(sites=sites)
