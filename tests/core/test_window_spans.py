"""Reading windows: bounds of any span against the true count, and names of spans against a slow search."""

from datetime import datetime, timedelta
from math import inf
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from countless.core.answer import State
from countless.core.calendar import PERIODS, Calendar
from countless.core.durations import require_duration
from countless.core.windows.spans import WindowCount, count_between, span_named, worst
from countless.errors import InvalidParameter

HOURS = Calendar("hour")
NOW = HOURS.moment("2026-11-16T10:30Z")


# Counts


@st.composite
def counted(draw: st.DrawFn) -> tuple[list[float], list[WindowCount], float]:
    """Moments of events, the windows of length 10 that have some, with bounds as loose as drawn, and a moment of
    reading in the last one. The windows before `kept` are dropped: one that begins at -inf stands for them.
    """
    now = draw(st.integers(1, 600)) / 10
    events = draw(st.lists(st.integers(0, int(now * 10) - 1).map(lambda tenth: tenth / 10), max_size=30))
    kept = draw(st.sampled_from([0, 0, 10, 30]))
    windows = []
    for start in range(kept, 60, 10):
        true = sum(start <= event < start + 10 for event in events)
        slack = draw(st.tuples(st.floats(0, 3), st.floats(0, 3))) if start + 10 > now else (0, 0)
        if true or draw(st.booleans()):
            open_ = start + 10 > now
            bounds = max(0, true - slack[0]), true + slack[1]
            windows.append(
                WindowCount(start, start + 10, bounds[0], sum(bounds) / 2, bounds[1], State.HOLDING, not open_)
            )
    dropped = sum(event < kept for event in events)
    if dropped:
        windows.insert(0, WindowCount(-inf, kept, dropped, dropped, dropped))
    return events, windows, now


@given(counted(), st.floats(-5, 65), st.floats(-5, 65))
def test_true_count_is_between_the_bounds(
    counts: tuple[list[float], list[WindowCount], float], start: float, end: float
) -> None:
    events, windows, now = counts
    start, end = sorted((start, end))
    span = count_between(windows, start, end, now)
    true = sum(start <= event < end for event in events)
    assert span.lower <= true <= span.upper
    assert span.lower <= span.estimate <= span.upper
    assert not span.exact or true == span.lower


@given(counted(), st.floats(0, 60))
def test_span_that_ends_now_has_the_whole_open_window(
    counts: tuple[list[float], list[WindowCount], float], length: float
) -> None:
    _, windows, now = counts
    span, open_ = count_between(windows, now - length, now, now), [window for window in windows if window.end > now]
    if open_ and now - length <= open_[0].start < now:
        assert span.lower >= open_[0].lower


@given(counted(), st.integers(0, 6), st.integers(0, 6))
def test_span_of_whole_windows_is_their_sum(
    counts: tuple[list[float], list[WindowCount], float], first: int, last: int
) -> None:
    events, windows, now = counts
    start, end = sorted((10 * first, 10 * last))
    span = count_between(windows, start, end, now)
    if start >= 30:  # nothing is dropped there
        inside = [window for window in windows if start <= window.start and window.end <= end]
        assert span.upper - span.lower <= sum(window.upper - window.lower for window in inside)
        assert span.known_since is None
    if span.complete and span.known_since is None:
        assert span.lower == span.upper == sum(start <= event < end for event in events)


def test_span_without_windows_has_no_events() -> None:
    assert count_between([], 0, 3600, 7200) == WindowCount(0, 3600, 0, 0, 0)


def test_span_is_not_complete_before_it_is_over() -> None:
    assert not count_between([], 0, 3600, 1800).complete
    assert count_between([], 0, 3600, 3600).complete


def test_site_that_an_earlier_window_waits_for_makes_the_span_incomplete() -> None:
    """It may have counted in later windows that no other site has counted in."""
    stuck = WindowCount(0, 10, 5, 6, 7, State.DEGRADED, False, waiting=2)
    span = count_between([stuck], 20, 30, 40)
    assert (span.complete, span.waiting, span.lower, span.upper) == (False, 2, 0, 0)
    later = stuck._replace(start=30, end=40)
    assert count_between([later], 20, 30, 40).complete


def test_lost_sites_of_an_earlier_window_do_not_make_the_span_incomplete() -> None:
    lost = WindowCount(0, 10, 5, 5, 5, State.DEGRADED, complete=False, lost=1)
    assert count_between([lost], 10, 20, 40).complete
    span = count_between([lost], 0, 20, 40)
    assert (span.complete, span.lost, span.exact, span.state) == (False, 1, False, State.DEGRADED)


def test_dropped_windows_count_as_known_only_together() -> None:
    windows = [WindowCount(-inf, 100, 40, 40, 40), WindowCount(100, 200, 7, 7, 7)]
    span = count_between(windows, 50, 200, 300)
    assert (span.lower, span.estimate, span.upper, span.known_since) == (7, 7, 47, 100)
    assert count_between(windows, -inf, 200, 300)[2:5] == (47, 47, 47)
    assert count_between(windows, 100, 200, 300).known_since is None


def test_window_of_a_site_whose_clock_is_ahead_is_not_in_a_span_that_ends_now() -> None:
    windows = [WindowCount(0, 60, 5, 5, 5, State.HOLDING, False), WindowCount(60, 120, 3, 3, 3, State.HOLDING, False)]
    assert count_between(windows, 0, 50, 50).upper == 5
    assert count_between(windows, 0, 120, 50).upper == 8


def test_bounds_of_large_counts_do_not_round() -> None:
    windows = [WindowCount(n, n + 1, 2**60 + 1, 2**60 + 1, 2**60 + 1) for n in range(3)]
    assert count_between(windows, 0, 3)[2:5] == (3 * 2**60 + 3,) * 3


def test_worst_state() -> None:
    assert worst(State.EXACT, State.DEGRADED, State.HOLDING) is State.DEGRADED
    assert worst(State.HOLDING, State.LEARNING) is State.LEARNING


# Names


def span(name: str, calendar: Calendar = HOURS, now: float = NOW) -> list[str]:
    return [calendar.local_time(second) for second in span_named(name, calendar, now)]


def test_names_of_spans_of_hours() -> None:
    day = ["2026-11-16T00:00:00+00:00", "2026-11-17T00:00:00+00:00"]
    assert span("now") == span("this-hour") == ["2026-11-16T10:00:00+00:00", "2026-11-16T11:00:00+00:00"]
    assert span("last") == span("last-hour") == ["2026-11-16T09:00:00+00:00", "2026-11-16T10:00:00+00:00"]
    assert span("today") == span("this-day") == span("2026-11-16") == day
    assert span("yesterday") == span("last-day") == ["2026-11-15T00:00:00+00:00", day[0]]
    assert span("this-month") == ["2026-11-01T00:00:00+00:00", "2026-12-01T00:00:00+00:00"]
    assert span("last-month") == ["2026-10-01T00:00:00+00:00", "2026-11-01T00:00:00+00:00"]
    assert span("2026-11-16T10:59:59Z") == span("2026-11-16T11:30+01:00") == span("now")


def test_time_without_offset_is_local() -> None:
    berlin = Calendar("hour", "Europe/Berlin")
    assert span("2026-11-16T11:10", berlin) == ["2026-11-16T11:00:00+01:00", "2026-11-16T12:00:00+01:00"]


def test_date_of_a_counter_with_days_or_months_is_its_window() -> None:
    assert span("2026-11-16", Calendar("day", anchor=6)) == ["2026-11-15T06:00:00+00:00", "2026-11-16T06:00:00+00:00"]
    assert span("2026-11-16", Calendar("month")) == ["2026-11-01T00:00:00+00:00", "2026-12-01T00:00:00+00:00"]


@pytest.mark.parametrize("name", ["", "this", "last-year", "now-hour", "tomorrow", "Today", "2026-13-01", "15m"])
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
