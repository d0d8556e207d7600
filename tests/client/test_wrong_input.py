"""What a program does wrong is an error that names the parameter, the value and what is allowed; nothing changes."""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

import countless
from countless.client.client import Client
from countless.errors import InvalidParameter
from support.local_counters import counts_of

URL = "http://127.0.0.1:9"


@pytest.fixture
def client() -> Client:
    return countless.connect(URL, site="web")


WRONG: dict[str, Callable[[Any], object]] = {
    "url = 5": lambda client: countless.connect(5),  # type: ignore[arg-type]
    "url = 'http://two words'": lambda client: countless.connect("http://two words"),
    r"site = 'a\\nb'": lambda client: countless.connect(URL, site="a\nb"),
    "token = <class 'int'>": lambda client: countless.connect(URL, token=5),  # type: ignore[arg-type]
    "state_dir = 5": lambda client: countless.connect(URL, state_dir=5),  # type: ignore[arg-type]
    "url = ''": lambda client: countless.connect(""),
    "url = 'http://web/#x'": lambda client: countless.connect("http://web/#x"),
    "site = ''": lambda client: countless.connect(URL, site=""),
    "state_dir = ''": lambda client: countless.connect(URL, state_dir=""),
    "family = 'no'": lambda client: client.counter("b", family="no"),
    "timeout = 0": lambda client: countless.Reader(URL, timeout=0),
    "timeout = inf": lambda client: countless.Reader(URL, timeout=inf),
    "timeout = 'x'": lambda client: countless.Reader(URL, timeout="x"),  # type: ignore[arg-type]
    r"counter = \[\]": lambda client: client.counter([]),
    "label_cap = -1": lambda client: client.counter("b", label_cap=-1),
    "label_cap = 1.5": lambda client: client.counter("b", label_cap=1.5),
    r"labels = {'code': \[\]}": lambda client: client.counter("a").labels(code=[]),
    r"counter with its labels = 'a{b=.*\(3,\d+ characters\)": lambda client: client.counter("a").labels(b="x" * 3000),
    r"budget = \[\]": lambda client: client.budget([]),
    "budget = 'keys/'": lambda client: client.budget("keys/"),
    "share = '2%'": lambda client: client.top("a", share="2%"),
    "share = 2": lambda client: client.top("a", 2),
    "shares = 'p99'": lambda client: client.quantile("a", 0.5, "p99"),
    "name = ''": lambda client: client.answer(""),
    "name = None": lambda client: client.top(None),
    "name = 5": lambda client: client.quantile(5, 0.5),
    "counter = 5": lambda client: client.watch(5, over=1),
    "possibly = 5": lambda client: client.watch("a", over=1, possibly=5),
    "timeout = nan": lambda client: client.flush(nan),
    "timeout = None": lambda client: client.flush(None),
    "timeout = -1": lambda client: client.close(-1),
    "wait = nan": lambda client: client.budget("tokens").take(wait=nan),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_input_is_refused_with_the_name_of_the_parameter(client: Client, message: str) -> None:
    client.counter("a")
    with pytest.raises(InvalidParameter, match=f"^{message}.* is not allowed: .* must be "):
        WRONG[message](client)
    assert (counts_of(client), client._closing) == ({"a": 0}, False)


def test_closed_client_refuses_to_count_also_under_new_names(client: Client) -> None:
    used, hourly = client.counter("used"), client.counter("hourly", per="hour")
    assert client.close(inf)
    calls: tuple[Callable[[], object], ...] = (
        used.inc,
        hourly.inc,
        lambda: client.counter("new").inc(),
        lambda: used.labels(a=1).inc(),
        lambda: client.counter("new hourly", per="hour").inc(),
        lambda: client.counter("new family", family=True).inc(),
        lambda: client.distribution("new ms").observe(1),
    )
    for count in calls:
        with pytest.raises(InvalidParameter, match="a counter of a client that has not been closed"):
            count()
    assert not any(counts_of(client).values())
