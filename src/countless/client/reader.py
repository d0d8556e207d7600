"""Reading answers in a program, with types and in plain text.

reader = countless.Reader("http://127.0.0.1:2686")
print(reader.window("requests", "today"))     # requests today: 1,204,332 (from 1,203,900 to 1,204,800; open ...)
reader.rolling("requests", "15m").lower       # at least so many in the last 15 minutes
reader.rate("requests", over="5m").estimate   # events per second
reader.top("requests", share=0.02).series     # the labelled series with two per cent or more
reader.quantile("latency_ms", 0.99)           # a value, with bounds
"""

from datetime import datetime
from math import ceil, floor, inf, log10
from typing import Any, NamedTuple

from countless.client.api import ApiClient
from countless.client.environment import url_or_default
from countless.client.json_fields import json_fields

_BAR_CHARS = 30
_TIMES = ("start", "end", "known_since", "as_of", "first_window")


class TotalCount(NamedTuple):
    """All that was ever counted: `estimate`, and the truth from `lower` to `upper`, unless the `state` is degraded or
    learning. `as_of` is the time of reading; `per` says which windows the counter has, None if it has none.
    """

    counter: str
    estimate: float
    lower: float
    upper: float
    state: str  # exact, holding, learning, degraded
    as_of: datetime
    per: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """What a program may log or send as JSON."""
        return json_fields(self)

    @classmethod
    def parse(cls, answer: dict[str, Any]) -> "TotalCount":
        """From the JSON of the API."""
        return cls(**_known(answer, cls._fields))

    def __str__(self) -> str:
        per = f"; per {self.per}" if self.per else ""
        return f"{self.counter}: {self.estimate:,.0f} (from {self.lower:,.0f} to {self.upper:,.0f}; {self.state}{per})"


class WindowCount(NamedTuple):
    """The count of a window, or of several together: this hour, yesterday ...

    It is of the time from `start` to `end`: `estimate`, and the truth from `lower` to `upper`, unless the `state` is
    degraded or learning. `complete`: it is over, and every site has delivered its last count, so this is final.
    `known_since` is None, unless the time begins before the windows that are kept: `upper` allows for all of those.
    `first_window` is when the first window of the counter began, if that is kept: before it nothing was counted.
    """

    counter: str
    window: str  # as it was asked for
    start: datetime
    end: datetime  # the first moment after it
    estimate: float
    lower: float
    upper: float
    state: str  # exact, holding, learning, degraded
    complete: bool
    known_since: datetime | None
    as_of: datetime
    first_window: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """What a program may log or send as JSON."""
        return json_fields(self)

    @classmethod
    def parse(cls, answer: dict[str, Any]) -> "WindowCount":
        """From the JSON of the API."""
        return cls(**_known(answer, cls._fields))

    @property
    def exact(self) -> bool:
        return self.state == "exact"

    @property
    def open(self) -> bool:
        """It is not over yet."""
        return self.as_of < self.end

    def __str__(self) -> str:
        bounds = "exact" if self.exact else f"from {self.lower:,.0f} to {self.upper:,.0f}"
        if self.open:
            bounds += f"; open, resets at {self.end.isoformat()}"
        elif not self.complete:
            bounds += "; incomplete: a site has not delivered its last count"
        if self.first_window is not None and self.end <= self.first_window and self.known_since is None:
            bounds += f"; before the first window, which began at {self.first_window.isoformat()}"
        return f"{self.counter} {self.window}: {self.estimate:,.0f} ({bounds}{_doubts(self)})"


class Rate(NamedTuple):
    """Events per second, over a span that ends now: `estimate`, `lower`, `upper`."""

    counter: str
    over: str  # the length of the span, as it was asked for
    estimate: float
    lower: float
    upper: float
    state: str
    known_since: datetime | None

    def as_dict(self) -> dict[str, Any]:
        """What a program may log or send as JSON."""
        return json_fields(self)

    def __str__(self) -> str:
        estimate, lower, upper = _shown(self.estimate, round), _shown(self.lower, floor), _shown(self.upper, ceil)
        return f"{self.counter}, last {self.over}: {estimate}/s (from {lower} to {upper}{_doubts(self)})"


class RollingCount(NamedTuple):
    """The count of a span that ends now, such as the last 15 minutes, and its `rate`.

    `estimate`, and the truth from `lower` to `upper`, unless the `state` is degraded or learning. `known_since` is
    None, unless the record of the past begins later than the span: `upper` allows for all that was ever counted.
    """

    counter: str
    over: str  # the length of the span, as it was asked for
    start: datetime
    end: datetime
    estimate: float
    lower: float
    upper: float
    state: str  # exact, holding, learning, degraded
    known_since: datetime | None
    rate: Rate

    def as_dict(self) -> dict[str, Any]:
        """What a program may log or send as JSON."""
        return json_fields(self)

    @classmethod
    def parse(cls, answer: dict[str, Any]) -> "RollingCount":
        """From the JSON of the API."""
        answer = answer | {"over": answer["rolling"]}
        rate = Rate(**_known(answer | answer["rate"], Rate._fields))
        return cls(**_known(answer | {"rate": rate}, cls._fields))

    @property
    def exact(self) -> bool:
        return self.state == "exact"

    def __str__(self) -> str:
        exact = f"{self.estimate:,.0f}, exact"
        count = exact if self.exact else f"between {self.lower:,.0f} and {self.upper:,.0f}"
        return f"{self.counter}, last {self.over}: {count}, {_shown(self.rate.estimate, round)}/s{_doubts(self)}"


class SeriesCount(NamedTuple):
    """One labelled series: `estimate`, and the truth from `lower` to `upper`."""

    counter: str  # the name of the series, with its labels
    estimate: float
    lower: float
    upper: float
    state: str  # exact, holding, learning, degraded


class TopCounts(NamedTuple):
    """The labelled series that may have a share of a counter's count, the largest first.

    `estimate`, `lower` and `upper` are of all series together. A series in the list has the share for certain if its
    `lower` is at least `share` times this `upper`.
    """

    counter: str
    share: float
    estimate: float
    lower: float
    upper: float
    state: str
    series: tuple[SeriesCount, ...]
    as_of: datetime

    def as_dict(self) -> dict[str, Any]:
        """What a program may log or send as JSON."""
        return json_fields(self)

    @classmethod
    def parse(cls, answer: dict[str, Any]) -> "TopCounts":
        """From the JSON of the API."""
        series = tuple(SeriesCount(**_known(each, SeriesCount._fields)) for each in answer["series"])
        return cls(**_known(answer | {"series": series}, cls._fields))

    def __str__(self) -> str:
        """A bar for each series: full up to `lower`, and lighter up to `upper`."""
        total = f"{self.estimate:,.0f} (from {self.lower:,.0f} to {self.upper:,.0f}; {self.state})"
        lines = [f"{self.counter}: {total}, {self.share:.2%} or more:"]
        most = max((each.upper for each in self.series), default=1)
        for each in self.series:
            labels = each.counter.removeprefix(self.counter) or "without labels"
            certain, possible = round(each.lower / most * _BAR_CHARS), round(each.upper / most * _BAR_CHARS)
            bar = "█" * certain + "░" * (possible - certain)
            share = each.estimate / self.estimate if self.estimate else 0.0
            bounds = f"from {each.lower:,.0f} to {each.upper:,.0f}"
            lines.append(f"{bar:<{_BAR_CHARS}} {share:6.1%}  {each.estimate:,.0f} ({bounds})  {labels}")
        return "\n".join(lines)


class QuantileValue(NamedTuple):
    """The value with a share `q` of all observations at or below it: `estimate`, and the truth from `lower` to `upper`.

    `upper` is infinite while observations that are not reported yet could be larger than all known ones.
    """

    q: float
    estimate: float
    lower: float
    upper: float


class Quantiles(NamedTuple):
    """Quantiles of a distribution, in the order in which they were asked for; none if there are no observations.

    `estimate`, `lower` and `upper` are the number of observations.
    """

    counter: str
    estimate: float
    lower: float
    upper: float
    state: str
    quantiles: tuple[QuantileValue, ...]
    as_of: datetime

    def as_dict(self) -> dict[str, Any]:
        """What a program may log or send as JSON."""
        return json_fields(self)

    @classmethod
    def parse(cls, answer: dict[str, Any]) -> "Quantiles":
        """From the JSON of the API."""
        rows = answer["quantiles"]
        values = tuple(
            QuantileValue(row["q"], row["estimate"], row["lower"], inf if row["upper"] is None else row["upper"])
            for row in rows
        )
        return cls(**_known(answer | {"quantiles": values}, cls._fields))

    def __str__(self) -> str:
        count = f"{self.estimate:,.0f} observations (from {self.lower:,.0f} to {self.upper:,.0f}; {self.state})"
        lines = [f"{self.counter}: {count}"]
        lines += [
            f"{each.q:>8g}  {each.estimate:.6g} (from {each.lower:.6g} to {each.upper:.6g})" for each in self.quantiles
        ]
        return "\n".join(lines)


class Reader:
    """Reads answers of a coordinator; of a cluster, any of its coordinators answers for all counters.

    What is not given comes from the environment, as for `connect`: `COUNTLESS_URL`, and `COUNTLESS_TOKEN` or
    `COUNTLESS_TOKEN_FILE`, a token of scope read. Every call is one request; a failure is a `CountlessError`.
    """

    def __init__(self, url: str | None = None, token: str | None = None, timeout: float = 10.0) -> None:
        self._api = ApiClient(url_or_default(url), token, timeout)

    def answer(self, counter: str) -> TotalCount:
        """All that was ever counted."""
        return TotalCount.parse(self._api.answer(counter))

    def window(self, counter: str, which: str = "now") -> WindowCount:
        """The count of `now`, `last`, `this-hour`, `last-hour` (also minute, day, month), `today`, `yesterday`, a date
        such as `2026-11-16`, or of the window that contains a time such as `2026-11-16T10:30`.

        For counters with windows, by the clock of the coordinator and in the time zone of the counter.
        """
        return WindowCount.parse(self._api.answer(counter, window=which))

    def rolling(self, counter: str, over: str) -> RollingCount:
        """The count of the last `15m`, `1h`, `7d`. For every counter."""
        return RollingCount.parse(self._api.answer(counter, rolling=over))

    def top(
        self, counter: str, share: float = 0.02, *, window: str | None = None, rolling: str | None = None
    ) -> TopCounts:
        """The labelled series that may have this share of the counter's count: of all that was ever counted, of a
        window as in `window`, or of the last `rolling` minutes. None that has the share is missing. Of a family, the
        labels; `rolling` is not for families, and `share` is at least its epsilon for none to be missing.
        """
        query = {"window": window, "rolling": rolling}
        given = {name: value for name, value in query.items() if value is not None}
        return TopCounts.parse(self._api.top(counter, share=repr(share), **given))

    def quantile(self, distribution: str, *shares: float, window: str | None = None) -> Quantiles:
        """Values of a distribution: the median, 0.9 and 0.99, or these `shares`; of a window as in `window`."""
        return Quantiles.parse(self._api.quantiles(distribution, *map(repr, shares), window=window))

    def rate(self, counter: str, over: str = "5m") -> Rate:
        """Events per second, on average over the last so many minutes. For every counter."""
        return self.rolling(counter, over).rate


def _known(answer: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of these names; a later coordinator may send others."""
    times = {name: datetime.fromisoformat(answer[name]) for name in _TIMES if answer.get(name) is not None}
    return {name: value for name, value in (answer | times).items() if name in names}


def _doubts(count: WindowCount | RollingCount | Rate) -> str:
    doubts = f"; {count.state}" if count.state in ("learning", "degraded") else ""
    return doubts + (f"; known since {count.known_since.isoformat(timespec='seconds')}" if count.known_since else "")


def _shown(rate: float, rounding: Any) -> str:
    """Three digits; bounds are rounded to the outside.

    >>> _shown(11.7777, round), _shown(11.7777, floor), _shown(0.0123456, ceil), _shown(123456.7, floor)
    ('11.8', '11.7', '0.0124', '123,456')
    """
    digits = max(0, 2 - floor(log10(rate))) if rate > 0 else 0
    return f"{rounding(rate * 10**digits) / 10**digits:,.{digits}f}"
