"""Results of `Reader` and `Client`: counts with bounds, and their lines of text."""

from datetime import datetime
from math import ceil, floor, inf, log10
from typing import Any, Literal, NamedTuple

StateName = Literal["exact", "holding", "learning", "degraded"]

_BAR_CHARS = 30
_TIMES = ("start", "end", "known_since", "as_of", "first_window")


class TotalCount(NamedTuple):
    """The total of everything that was ever counted."""

    counter: str
    estimate: int
    lower: int
    upper: int
    state: StateName
    as_of: datetime
    per: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, to log or send as JSON."""
        return json_fields(self)

    def __str__(self) -> str:
        per = f"; per {self.per}" if self.per else ""
        return f"{self.counter}: {self.estimate:,.0f} (from {self.lower:,.0f} to {self.upper:,.0f}; {self.state}{per})"


class WindowCount(NamedTuple):
    """The count of a window, or of several together: this hour, yesterday ...

    If it begins before the windows that are kept, `upper` allows for all of those before `known_since`.
    """

    counter: str
    window: str  # as it was asked for
    start: datetime
    end: datetime  # the first moment after it
    estimate: int
    lower: int
    upper: int
    state: StateName
    complete: bool
    known_since: datetime | None
    as_of: datetime
    first_window: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, to log or send as JSON."""
        return json_fields(self)

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
    """Events per second, over a span that ends now."""

    counter: str
    over: str  # the length of the span, as it was asked for
    estimate: float
    lower: float
    upper: float
    state: StateName
    known_since: datetime | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, to log or send as JSON."""
        return json_fields(self)

    def __str__(self) -> str:
        estimate, lower, upper = _shown(self.estimate, round), _shown(self.lower, floor), _shown(self.upper, ceil)
        return f"{self.counter}, last {self.over}: {estimate}/s (from {lower} to {upper}{_doubts(self)})"


class RollingCount(NamedTuple):
    """The count of a span that ends now, such as the last 15 minutes, and its `rate`.

    If the record of the past begins later than the span, `upper` allows for all that was ever counted.
    """

    counter: str
    over: str  # the length of the span, as it was asked for
    start: datetime
    end: datetime
    estimate: int
    lower: int
    upper: int
    state: StateName
    known_since: datetime | None
    rate: Rate

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, to log or send as JSON."""
        return json_fields(self)

    @property
    def exact(self) -> bool:
        return self.state == "exact"

    def __str__(self) -> str:
        exact = f"{self.estimate:,.0f}, exact"
        count = exact if self.exact else f"between {self.lower:,.0f} and {self.upper:,.0f}"
        return f"{self.counter}, last {self.over}: {count}, {_shown(self.rate.estimate, round)}/s{_doubts(self)}"


class SeriesCount(NamedTuple):
    """The count of one labelled series."""

    counter: str  # the name of the series, with its labels
    estimate: int
    lower: int
    upper: int
    state: StateName


class TopCounts(NamedTuple):
    """The labelled series that may have a share of a counter's count, the largest first.

    `estimate`, `lower` and `upper` are of all series together. Others may have a
    little less than the share; while the bounds hold, a series whose `lower` is at least `share * upper` has it.
    """

    counter: str
    share: float
    estimate: int
    lower: int
    upper: int
    state: StateName
    series: tuple[SeriesCount, ...]
    as_of: datetime

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, to log or send as JSON."""
        return json_fields(self)

    def __str__(self) -> str:
        """A bar for each series: full up to `lower`, and lighter up to `upper`."""
        total = f"{self.estimate:,.0f} (from {self.lower:,.0f} to {self.upper:,.0f}; {self.state})"
        if not self.series:
            nothing = "no series has" if self.upper else "nothing was counted, so no series has"
            return f"{self.counter}: {total}; {nothing} {self.share:.2%} or more"
        lines = [f"{self.counter}: {total}, {self.share:.2%} or more:"]
        most = max(each.upper for each in self.series)
        for each in self.series:
            labels = each.counter.removeprefix(self.counter) or "without labels"
            certain, possible = round(each.lower / most * _BAR_CHARS), round(each.upper / most * _BAR_CHARS)
            bar = "█" * certain + "░" * (possible - certain)
            share = each.estimate / self.estimate if self.estimate else 0.0
            bounds = f"from {each.lower:,.0f} to {each.upper:,.0f}"
            lines.append(f"{bar:<{_BAR_CHARS}} {share:6.1%}  {each.estimate:,.0f} ({bounds})  {labels}")
        return "\n".join(lines)


class QuantileValue(NamedTuple):
    """The value with a share `q` of all observations at or below it.

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
    estimate: int
    lower: int
    upper: int
    state: StateName
    quantiles: tuple[QuantileValue, ...]
    as_of: datetime

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, to log or send as JSON."""
        return json_fields(self)

    def __str__(self) -> str:
        count = f"{self.estimate:,.0f} observations (from {self.lower:,.0f} to {self.upper:,.0f}; {self.state})"
        lines = [f"{self.counter}: {count}" + ("" if self.quantiles else "; so there are no quantiles")]
        lines += [
            f"{each.q:>8g}  {each.estimate:.6g} (from {each.lower:.6g} to {each.upper:.6g})" for each in self.quantiles
        ]
        return "\n".join(lines)


# From the JSON of the API


def parse_total(answer: dict[str, Any]) -> TotalCount:
    return TotalCount(**_known(answer, TotalCount._fields))


def parse_window(answer: dict[str, Any]) -> WindowCount:
    return WindowCount(**_known(answer, WindowCount._fields))


def parse_rolling(answer: dict[str, Any]) -> RollingCount:
    answer = answer | {"over": answer["rolling"]}
    rate = Rate(**_known(answer | answer["rate"], Rate._fields))
    return RollingCount(**_known(answer | {"rate": rate}, RollingCount._fields))


def parse_top(answer: dict[str, Any]) -> TopCounts:
    series = tuple(SeriesCount(**_known(each, SeriesCount._fields)) for each in answer["series"])
    return TopCounts(**_known(answer | {"series": series}, TopCounts._fields))


def parse_quantiles(answer: dict[str, Any]) -> Quantiles:
    rows = answer["quantiles"]
    values = tuple(
        QuantileValue(row["q"], row["estimate"], row["lower"], inf if row["upper"] is None else row["upper"])
        for row in rows
    )
    return Quantiles(**_known(answer | {"quantiles": values}, Quantiles._fields))


def _known(answer: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of these names; a later coordinator may send others."""
    times = {name: datetime.fromisoformat(answer[name]) for name in _TIMES if answer.get(name) is not None}
    return {name: value for name, value in (answer | times).items() if name in names}


def _doubts(count: WindowCount | RollingCount | Rate) -> str:
    doubts = f"; {count.state}" if count.state in ("learning", "degraded") else ""
    return doubts + (f"; unknown before {count.known_since.isoformat(timespec='seconds')}" if count.known_since else "")


def _shown(rate: float, rounding: Any) -> str:
    """Three digits; bounds are rounded to the outside.

    >>> _shown(11.7777, round), _shown(11.7777, floor), _shown(0.0123456, ceil), _shown(123456.7, floor)
    ('11.8', '11.7', '0.0124', '123,456')
    """
    digits = max(0, 2 - floor(log10(rate))) if rate > 0 else 0
    return f"{rounding(rate * 10**digits) / 10**digits:,.{digits}f}"


def json_fields(result: Any) -> dict[str, Any]:
    """The fields of a named tuple, with times as ISO 8601 and None for no upper bound."""
    return {name: _plain(value) for name, value in result._asdict().items()}


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return json_fields(value) if hasattr(value, "_asdict") else [_plain(each) for each in value]
    return None if value == inf else value
