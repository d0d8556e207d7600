"""Reading windows: bounds of any span against the true count, and names of spans against a slow search."""

from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from countless.core.calendar import PERIODS, Calendar
from countless.core.parameters import require_duration
from countless.core.periods.spans import SpanCount, count_between, span_named
from countless.core.periods.window import Window, WindowState
from countless.errors import InvalidParameter

HOURS = Calendar("hour")
NOW = HOURS.moment("2026-11-16T10:30Z")


# Counts


class Counted(NamedTuple):
    """Moments of events, the windows of length 10 that have some, and a moment of reading in the last one. Windows
    before `kept` are dropped. Each site counts by its own clock, so these moments are what the clocks showed.
    """

    events: list[float]
    windows: list[Window]
    now: float
    dropped: int
    kept: int

    def between(self, start: float, end: float) -> SpanCount:
        return count_between(self.windows, start, end, self.now, dropped=self.dropped, kept_since=self.kept)

    def true(self, start: float, end: float) -> int:
        return sum(start <= event < end for event in self.events)


def window(start: int, lower: float, upper: float, state: WindowState = WindowState.CLOSED, **fields: int) -> Window:
    return Window(start // 10, start, start + 10, lower, (lower + upper) / 2, upper, state, **fields)


@st.composite
def counted(draw: st.DrawFn) -> Counted:
    """The bounds of windows that are not closed are as loose as drawn."""
    now = draw(st.integers(1, 600)) / 10
    events = draw(st.lists(st.integers(0, int(now * 10) - 1).map(lambda tenth: tenth / 10), max_size=30))
    kept = draw(st.sampled_from([0, 0, 10, 30]))
    windows = []
    for start in range(kept, 60, 10):
        true = sum(start <= event < start + 10 for event in events)
        state = WindowState.OPEN if start + 10 > now else draw(st.sampled_from(list(WindowState)[1:]))
        below, above = (0.0, 0.0) if state is WindowState.CLOSED else draw(st.tuples(st.floats(0, 3), st.floats(0, 3)))
        if true or draw(st.booleans()):
            waiting = int(state is WindowState.INCOMPLETE)
            windows.append(window(start, max(0, true - below), true + above, state, waiting=waiting))
    return Counted(events, windows, now, sum(event < kept for event in events), kept)


@given(counted(), st.floats(-5, 65), st.floats(-5, 65))
def test_true_count_is_between_the_bounds(counts: Counted, start: float, end: float) -> None:
    start, end = sorted((start, end))
    span = counts.between(start, end)
    assert span.lower <= counts.true(start, end) <= span.upper
    assert span.lower <= span.estimate <= span.upper


@given(counted(), st.floats(0, 60))
def test_span_that_ends_now_has_the_whole_open_window(counts: Counted, length: float) -> None:
    span = counts.between(counts.now - length, counts.now)
    open_ = [window for window in counts.windows if window.end > counts.now]
    if open_ and counts.now - length <= open_[0].start < counts.now:
        assert span.lower >= open_[0].lower


@given(counted(), st.integers(0, 6), st.integers(0, 6))
def test_span_of_whole_windows_is_their_sum(counts: Counted, first: int, last: int) -> None:
    start, end = sorted((10 * first, 10 * last))
    span = counts.between(start, end)
    inside = [window for window in counts.windows if start <= window.start and window.end <= end]
    if span.known_since is None:
        assert span.upper - span.lower <= sum(window.upper - window.lower for window in inside)
    if span.complete and span.known_since is None:
        assert span.exact
        assert span.lower == counts.true(start, end)


def test_span_without_windows_has_no_events() -> None:
    assert count_between([], 0, 3600, 7200) == SpanCount(0, 3600, 0, 0, 0)


def test_span_is_open_before_it_is_over() -> None:
    assert count_between([], 0, 3600, 1800).state is WindowState.OPEN
    assert count_between([], 0, 3600, 3600).complete
    assert count_between([window(0, 5, 7, WindowState.OPEN)], 0, 8, 8).state is WindowState.OPEN


def test_window_that_has_ended_and_is_not_closed_yet_makes_the_span_incomplete() -> None:
    assert count_between([window(0, 5, 5, WindowState.INCOMPLETE)], 0, 10, 20).state is WindowState.INCOMPLETE


def test_site_that_an_earlier_window_waits_for_makes_the_span_incomplete() -> None:
    """It may have counted in later windows that no other site has counted in."""
    span = count_between([window(0, 5, 7, WindowState.INCOMPLETE, waiting=2)], 20, 30, 40)
    assert (span.state, span.waiting, span.lower, span.upper) == (WindowState.INCOMPLETE, 2, 0, 0)
    assert count_between([window(30, 5, 7, WindowState.INCOMPLETE, waiting=2)], 20, 30, 40).complete


def test_lost_sites_of_an_earlier_window_do_not_make_the_span_incomplete() -> None:
    lost = window(0, 5, 5, WindowState.INCOMPLETE, lost=1)
    assert count_between([lost], 10, 20, 40).complete
    span = count_between([lost], 0, 20, 40)
    assert (span.state, span.lost, span.exact) == (WindowState.INCOMPLETE, 1, False)


def test_dropped_windows_are_known_only_together() -> None:
    windows = [window(100, 7, 7)]
    span = count_between(windows, 50, 200, 300, dropped=40, kept_since=100)
    assert (span.lower, span.estimate, span.upper, span.known_since) == (7, 7, 47, 100)
    assert count_between(windows, 100, 200, 300, dropped=40, kept_since=100).known_since is None
    reopened = [window(20, 2, 2), *windows]  # a site that was away for long
    assert count_between(reopened, 0, 200, 300, dropped=40, kept_since=100)[2:5] == (9, 9, 49)


def test_window_of_a_site_whose_clock_is_ahead_is_not_in_a_span_that_ends_now() -> None:
    windows = [window(0, 5, 5, WindowState.OPEN), window(10, 3, 3, WindowState.OPEN)]
    assert count_between(windows, 0, 8, 8).upper == 5
    assert count_between(windows, 0, 20, 8).upper == 8


def test_bounds_of_large_counts_do_not_round() -> None:
    windows = [Window(n, n, n + 1, 2**60 + 1, 2**60 + 1, 2**60 + 1, WindowState.CLOSED) for n in range(3)]
    assert count_between(windows, 0, 3)[2:5] == (3 * 2**60 + 3,) * 3


# Names


def span(name: str, calendar: Calendar = HOURS, now: float = NOW) -> list[str]:
    return [calendar.local_time(second) for second in span_named(name, calendar, now)]


def test_names_of_spans_of_hours() -> None:
    day = ["2026-11-16T00:00:00+00:00", "2026-11-17T00:00:00+00:00"]
    assert span("now") == span("this-hour") == ["2026-11-16T10:00:00+00:00", "2026-11-16T11:00:00+00:00"]
    assert span("last") == span("last-hour") == ["2026-11-16T09:00:00+00:00", "2026-11-16T10:00:00+00:00"]
    assert span("today") == span("this-day") == span("2026-11-16") == day
    assert span("yesterday") == span("last-day") == ["2026-11-15T00:00:00+00:00", day[0]]
    assert span("This hour") == span("now")
    assert span("this-month") == ["2026-11-01T00:00:00+00:00", "2026-12-01T00:00:00+00:00"]
    assert span("last-month") == ["2026-10-01T00:00:00+00:00", "2026-11-01T00:00:00+00:00"]
    assert span("2026-11-16T10:59:59Z") == span("2026-11-16T11:30+01:00") == span("now")


def test_time_without_offset_is_local() -> None:
    berlin = Calendar("hour", "Europe/Berlin")
    assert span("2026-11-16T11:10", berlin) == ["2026-11-16T11:00:00+01:00", "2026-11-16T12:00:00+01:00"]


def test_date_of_a_counter_with_days_or_months_is_its_window() -> None:
    assert span("2026-11-16", Calendar("day", anchor=6)) == ["2026-11-15T06:00:00+00:00", "2026-11-16T06:00:00+00:00"]
    assert span("2026-11-16", Calendar("month")) == ["2026-11-01T00:00:00+00:00", "2026-12-01T00:00:00+00:00"]


@pytest.mark.parametrize("name", ["", "this", "last-year", "now-hour", "tomorrow", "to day", "2026-13-01", "15m"])
def test_unknown_name_is_refused_with_the_names_that_there_are(name: str) -> None:
    with pytest.raises(InvalidParameter, match="today, yesterday"):
        span_named(name, HOURS, NOW)


@pytest.mark.parametrize(("per", "name"), [("day", "this-hour"), ("day", "last-minute"), ("month", "today")])
def test_span_shorter_than_a_window_is_refused(per: str, name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"windows of this counter are {per}s"):
        span_named(name, Calendar(per), NOW)


@given(
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Sao_Paulo"]),
    st.sampled_from(["minute", "hour"]),
    st.integers(0, 59),
    st.integers(1_500_000_000, 1_900_000_000),
)
@example("Australia/Lord_Howe", "hour", 15, 1_743_867_000)
def test_days_are_the_windows_that_begin_on_them(tz: str, per: str, anchor: int, now: int) -> None:
    """Against the date that the local clock shows at the start of each window around this moment."""
    calendar, zone = Calendar(per, tz, anchor), ZoneInfo(tz)
    start, end = span_named("today", calendar, now)
    assert start <= now < end
    assert (calendar.bounds(calendar.period_at(start))[0], calendar.bounds(calendar.period_at(end))[0]) == (start, end)
    present = calendar.bounds(calendar.period_at(now))[0]
    today = datetime.fromtimestamp(present, zone).date()
    assert datetime.fromtimestamp(start, zone).date() == today
    assert datetime.fromtimestamp(calendar.bounds(calendar.period_at(start - 1))[0], zone).date() == today - timedelta(
        1
    )
    assert datetime.fromtimestamp(end, zone).date() == today + timedelta(1)
    assert span_named("yesterday", calendar, now)[1] == start


@given(st.sampled_from(PERIODS), st.integers(0, 2_500_000_000), st.sampled_from(["this", "last"]))
def test_longer_spans_follow_each_other(per: str, now: int, when: str) -> None:
    calendar = Calendar(per, "Europe/Berlin")
    for longer in PERIODS[PERIODS.index(per) :]:
        start, end = span_named(f"{when}-{longer}", calendar, now)
        assert start < end
        assert span_named(f"last-{longer}", calendar, end)[1] == end


def test_time_at_the_ends_of_the_calendar_belongs_to_the_first_or_the_last_window() -> None:
    for tz in ("UTC", "Asia/Tokyo", "America/New_York"):
        for text in ("0001-01-01", "9999-12-31T23:59:59"):
            start, end = span_named(text, Calendar("hour", tz), NOW)
            assert start < end


# Durations


@pytest.mark.parametrize("value", ["", "x", "15", True, None, "-5m", "1h30", "nan", float("nan"), "900d", "9" * 999])
def test_duration_out_of_range_is_refused(value: object) -> None:
    with pytest.raises(InvalidParameter, match="rolling must be a duration such as 30s, 15m"):
        require_duration("rolling", value, "1m", "30d")


def test_duration_in_range() -> None:
    assert require_duration("rolling", "15m", "1s", "30d") == 900
    assert require_duration("rolling", 900, "1s", "30d") == 900
