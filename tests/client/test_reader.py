"""`countless.Reader`: typed results from the JSON of the API, and what they look like as text."""

from collections.abc import Callable
from datetime import UTC, datetime
from json import dumps, loads
from math import inf
from typing import Any

import pytest

import countless
from countless.client import reader as module
from countless.client.answers import Quantiles, QuantileValue, Rate, TopCounts, parse_rolling, parse_total, parse_window
from countless.errors import InvalidParameter

TOTAL = {"counter": "requests", "estimate": 6, "lower": 5.9, "upper": 6.1, "state": "exact"}
AS_OF = {"as_of": "2026-11-16T10:15:30.000+00:00"}
WINDOW = {
    **TOTAL,
    "estimate": 1204332,
    "lower": 1203900,
    "upper": 1204800,
    "state": "holding",
    "window": "today",
    "start": "2026-11-16T00:00:00+01:00",
    "end": "2026-11-17T00:00:00+01:00",
    "complete": False,
    "known_since": None,
    **AS_OF,
}
ROLLING = {
    **TOTAL,
    "estimate": 10500,
    "lower": 10233,
    "upper": 10871,
    "state": "holding",
    "rolling": "15m",
    "start": "2026-11-16T10:00:30.000+00:00",
    "end": "2026-11-16T10:15:30.000+00:00",
    "rate": {"lower": 11.37, "estimate": 11.6667, "upper": 12.0789},
    "known_since": None,
    **AS_OF,
}


class FakeApi:
    """Remembers the requests."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.asked: list[tuple[str, dict[str, str]]] = []

    def answer(self, counter: str, **query: str) -> dict[str, Any]:
        self.asked.append((counter, query))
        return WINDOW if "window" in query else ROLLING if "rolling" in query else {**TOTAL, **AS_OF}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> list[FakeApi]:
    made: list[FakeApi] = []

    def make(*arguments: Any) -> FakeApi:
        made.append(FakeApi(*arguments))
        return made[-1]

    monkeypatch.setattr(module, "ApiClient", make)
    return made


def test_reader_asks_for_what_was_called(api: list[FakeApi]) -> None:
    reader = countless.Reader("http://10.0.0.1:2686", "secret")
    assert reader.answer("requests").estimate == 6
    window = reader.window("requests", "today")
    assert (window.lower, window.open, window.exact, window.complete) == (1203900, True, False, False)
    assert window.start == datetime(2026, 11, 15, 23, tzinfo=UTC)
    assert reader.window("requests").window == "today"
    rolling, rate = reader.rolling("requests", "15m"), reader.rate("requests")
    assert (rolling.over, rolling.upper, rolling.known_since, rolling.exact) == ("15m", 10871, None, False)
    assert rate == rolling.rate == Rate("requests", "15m", 11.6667, 11.37, 12.0789, "holding", None)
    assert api[0].arguments == ("http://10.0.0.1:2686", "secret", 10.0)
    queries = [{}, {"window": "today"}, {"window": "now"}, {"rolling": "15m"}, {"rolling": "5m"}]
    assert api[0].asked == [("requests", query) for query in queries]


async def test_client_reads_where_it_counts(api: list[FakeApi]) -> None:
    with countless.connect("http://192.0.2.1:2686", "secret") as client:
        total = client.answer("requests")
        assert (await client.aanswer("requests"), total.estimate) == (total, 6)
        assert (client.window("requests").lower, client.rolling("requests", "15m").lower) == (1203900, 10233)
        assert client.rate("requests", over="15m").estimate == 11.6667
    assert [each.arguments[:2] for each in api] == [("http://192.0.2.1:2686", "secret")]
    queries = [{}, {}, {"window": "now"}, {"rolling": "15m"}, {"rolling": "15m"}]
    assert [query for _, query in api[0].asked] == queries


def test_reader_takes_its_url_from_the_environment(api: list[FakeApi], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTLESS_URL", "https://count.example")
    countless.Reader()
    countless.Reader(None, "mine")
    countless.Reader("http://here", "mine")
    expected = [("https://count.example", None), ("https://count.example", "mine"), ("http://here", "mine")]
    assert [each.arguments[:2] for each in api] == expected


def test_reader_refuses_the_address_of_a_broker() -> None:
    with pytest.raises(InvalidParameter, match="url must be an address such as http://"):
        countless.Reader("nats://127.0.0.1:4222")


def test_results_as_values_that_json_has(api: list[FakeApi]) -> None:
    reader = countless.Reader("http://10.0.0.1:2686")
    assert reader.answer("requests").as_dict() == TOTAL | {"as_of": "2026-11-16T10:15:30+00:00", "per": None}
    rolling = reader.rolling("requests", "15m").as_dict()
    assert (rolling["start"], rolling["rate"]["upper"]) == ("2026-11-16T10:00:30+00:00", 12.0789)
    quantiles = Quantiles("ms", 1, 1, 2, "holding", (QuantileValue(0.5, 3.0, 2.0, inf),), datetime(2026, 11, 16))
    assert loads(dumps(quantiles.as_dict()))["quantiles"] == [{"q": 0.5, "estimate": 3, "lower": 2, "upper": None}]


def text(parse: Callable[[dict[str, Any]], object], answer: dict[str, Any], **changes: Any) -> str:
    return str(parse(answer | changes))


def test_text_of_a_total() -> None:
    assert text(parse_total, TOTAL | AS_OF) == "requests: 6 (from 6 to 6; exact)"
    assert text(parse_total, TOTAL | AS_OF, per="hour") == "requests: 6 (from 6 to 6; exact; per hour)"


def test_text_of_nothing() -> None:
    nothing = TopCounts("requests", 0.02, 0, 0, 0, "exact", (), datetime(2026, 11, 16))
    assert str(nothing) == "requests: 0 (from 0 to 0; exact); nothing was counted, so no series has 2.00% or more"
    assert str(nothing._replace(estimate=9, upper=9)) == "requests: 9 (from 0 to 9; exact); no series has 2.00% or more"
    no_values = Quantiles("ms", 0, 0, 0, "exact", (), datetime(2026, 11, 16))
    assert str(no_values) == "ms: 0 observations (from 0 to 0; exact); so there are no quantiles"


def test_text_of_a_window() -> None:
    assert text(parse_window, WINDOW) == (
        "requests today: 1,204,332 (from 1,203,900 to 1,204,800; open, resets at 2026-11-17T00:00:00+01:00)"
    )
    over = {"end": "2026-11-16T11:00:00+01:00"}
    assert text(parse_window, WINDOW, **over, state="exact", complete=True) == "requests today: 1,204,332 (exact)"
    assert text(parse_window, WINDOW, **over, state="degraded", known_since="2026-11-16T01:00:00+01:00") == (
        "requests today: 1,204,332 (from 1,203,900 to 1,204,800; incomplete: a site has not delivered its last count; "
        "degraded; unknown before 2026-11-16T01:00:00+01:00)"
    )


def test_text_of_a_rolling_count() -> None:
    assert text(parse_rolling, ROLLING) == "requests, last 15m: between 10,233 and 10,871, 11.7/s"
    assert text(parse_rolling, ROLLING, state="exact") == "requests, last 15m: 10,500, exact, 11.7/s"
    assert text(parse_rolling, ROLLING, state="learning", known_since="2026-11-16T10:05:00.125+00:00") == (
        "requests, last 15m: between 10,233 and 10,871, 11.7/s; learning; unknown before 2026-11-16T10:05:00+00:00"
    )


def test_text_of_a_rate_rounds_bounds_to_the_outside() -> None:
    assert str(parse_rolling(ROLLING).rate) == "requests, last 15m: 11.7/s (from 11.3 to 12.1)"
    nothing = parse_rolling(ROLLING | {"rate": {"lower": 0, "estimate": 0, "upper": 0.0004}}).rate
    assert str(nothing) == "requests, last 15m: 0/s (from 0 to 0.000400)"
