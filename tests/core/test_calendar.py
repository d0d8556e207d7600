"""Calendar periods against a slow reference that follows a local clock minute by minute."""

from calendar import monthrange
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from countless.core.calendar import Calendar
from countless.errors import InvalidParameter

HOUR_S = 3600
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",  # until 2011 clocks changed at 00:01, and so went back over midnight
    "America/Sao_Paulo",  # summer time began at midnight: days without 00:00
    "Asia/Kolkata",
    "Asia/Kathmandu",  # +05:45
    "Australia/Lord_Howe",  # summer time is half an hour
    "Pacific/Apia",  # had no 30 December 2011
    "Pacific/Kiritimati",  # had no 1 January 1995
    "Africa/Casablanca",
    "Antarctica/Troll",  # summer time is two hours
]


def moment(zone: str, text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


class SlowClock:
    """A period has begun once the local clock has shown it. The offsets of zones after 1973 are whole minutes."""

    def __init__(self, calendar: Calendar) -> None:
        self.per, self.anchor = calendar.per, calendar.anchor
        self.zone = ZoneInfo(calendar.tz)

    def period_at(self, second: int) -> int:
        """Looks at the clock at the end of every minute of the last 25 hours: no zone went back by more."""
        minutes = range((second // 60 - 25 * 60) * 60, second - 59, 60)
        return max([self.shown(minute + 59) for minute in minutes] + [self.shown(second)])

    def shown(self, second: int) -> int:
        local = datetime.fromtimestamp(second, self.zone)
        if self.per == "month":
            begun = local.day >= min(self.anchor, monthrange(local.year, local.month)[1])
            return (local.year - 1970) * 12 + local.month - 1 - (not begun)
        if self.per == "day":
            return (local.date() - date(1970, 1, 1)).days - (local.hour < self.anchor)
        if self.per == "hour":  # a local clock repeats and skips hours, so they are counted by UTC
            minute_hand_ahead = (local.minute - datetime.fromtimestamp(second, UTC).minute) % 60
            return (second + 60 * minute_hand_ahead) // HOUR_S - (local.minute < self.anchor)
        return second // 60 - (local.second < self.anchor)


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    per = draw(st.sampled_from(["minute", "hour", "day", "month"]))
    first, last = {"minute": (0, 59), "hour": (0, 59), "day": (0, 23), "month": (1, 31)}[per]
    return Calendar(per, draw(st.sampled_from(ZONES)), draw(st.integers(first, last)))


moments = st.integers(moment("UTC", "1970-04-01"), moment("UTC", "2037-12-31"))  # beyond 2038 Python is slow


@pytest.mark.slow
@given(calendars(), moments)
@example(Calendar("day", "Pacific/Apia"), moment("Pacific/Apia", "2011-12-31"))
@example(Calendar("day", "America/St_Johns"), moment("UTC", "2010-11-07T02:31:30"))  # went back to 23:01
@example(Calendar("hour", "Australia/Lord_Howe"), moment("UTC", "2024-04-06T15:00"))
@example(Calendar("hour", "Australia/Lord_Howe"), moment("UTC", "2024-10-05T15:59:59"))
def test_period_is_the_latest_that_the_local_clock_has_shown(calendar: Calendar, second: int) -> None:
    clock, period = SlowClock(calendar), calendar.period_at(second)
    start, end = calendar.bounds(period)
    assert start <= second < end
    for each in (second, start, end - 1):
        assert clock.period_at(each) == calendar.period_at(each) == calendar.period_at(each + 0.999) == period
    assert clock.period_at(start - 1) == calendar.previous(period) == calendar.period_at(start - 1) < period
    assert clock.period_at(end) == calendar.next(period) == calendar.period_at(end) > period


@pytest.mark.slow
@given(calendars(), st.sampled_from(range(1974, 2037)), st.data())
def test_period_around_a_change_of_the_clocks(calendar: Calendar, year: int, data: st.DataObject) -> None:
    """The same around every moment of a year at which the zone's offset changes."""
    zone, start = ZoneInfo(calendar.tz), moment("UTC", f"{year}-01-01")
    offsets = [datetime.fromtimestamp(start + hour * HOUR_S, zone).utcoffset() for hour in range(366 * 24)]
    changes = [hour for hour in range(1, len(offsets)) if offsets[hour] != offsets[hour - 1]]
    if changes:
        hour = data.draw(st.sampled_from(changes))
        second = start + hour * HOUR_S + data.draw(st.integers(-HOUR_S, 2 * HOUR_S))
        test_period_is_the_latest_that_the_local_clock_has_shown.hypothesis.inner_test(calendar, second)


@pytest.mark.parametrize(
    ("per", "zone", "anchor", "inside", "start", "end"),
    [
        ("day", "Europe/Berlin", None, "2025-03-30T12:00", "2025-03-30T00:00+01:00", "2025-03-31T00:00+02:00"),
        ("day", "Europe/Berlin", None, "2025-10-26T12:00", "2025-10-26T00:00+02:00", "2025-10-27T00:00+01:00"),
        ("day", "Europe/Berlin", 2, "2025-03-30T12:00", "2025-03-30T03:00+02:00", "2025-03-31T02:00+02:00"),
        ("day", "America/Sao_Paulo", None, "2018-11-04T12:00", "2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"),
        ("day", "America/St_Johns", None, "2010-11-06T22:00", "2010-11-06T00:00-02:30", "2010-11-07T00:00-02:30"),
        ("day", "Pacific/Apia", None, "2011-12-29T12:00", "2011-12-29T00:00-10:00", "2011-12-31T00:00+14:00"),
        ("day", "Pacific/Apia", 12, "2011-12-31T13:00", "2011-12-31T12:00+14:00", "2012-01-01T12:00+14:00"),
        ("hour", "Australia/Lord_Howe", None, "2024-10-06T01:30", "2024-10-06T01:00+10:30", "2024-10-06T03:00+11:00"),
        ("hour", "Australia/Lord_Howe", None, "2024-04-07T01:10", "2024-04-07T01:00+11:00", "2024-04-07T01:30+10:30"),
        ("hour", "Asia/Kolkata", 15, "2025-01-01T09:10", "2025-01-01T08:15+05:30", "2025-01-01T09:15+05:30"),
        (
            "minute",
            "Asia/Kathmandu",
            30,
            "2025-01-01T09:10:29",
            "2025-01-01T09:09:30+05:45",
            "2025-01-01T09:10:30+05:45",
        ),
        ("month", "Europe/Berlin", None, "2025-03-31T23:59", "2025-03-01T00:00+01:00", "2025-04-01T00:00+02:00"),
        ("month", "UTC", 31, "2025-02-28T00:00", "2025-02-28T00:00+00:00", "2025-03-31T00:00+00:00"),
        ("month", "UTC", 31, "2024-02-28T00:00", "2024-01-31T00:00+00:00", "2024-02-29T00:00+00:00"),
        ("month", "UTC", 30, "2025-12-31T00:00", "2025-12-30T00:00+00:00", "2026-01-30T00:00+00:00"),
        ("month", "Pacific/Apia", 30, "2012-01-01T00:00", "2011-12-31T00:00+14:00", "2012-01-30T00:00+14:00"),
    ],
)
def test_period_has_the_bounds_of_the_calendar(
    per: str, zone: str, anchor: int | None, inside: str, start: str, end: str
) -> None:
    calendar = Calendar(per, zone, anchor)
    bounds = calendar.bounds(calendar.period_at(moment(zone, inside)))
    assert [calendar.local_time(each) for each in bounds] == [
        datetime.fromisoformat(each).isoformat() for each in (start, end)
    ]


def test_skipped_day_is_an_empty_period_between_its_neighbours() -> None:
    apia = Calendar("day", "Pacific/Apia")
    before = apia.period_at(moment("Pacific/Apia", "2011-12-29"))
    assert apia.bounds(before + 1) == (moment("Pacific/Apia", "2011-12-31"),) * 2
    assert apia.next(before) == before + 2
    assert apia.previous(before + 2) == before


@pytest.mark.parametrize("per", ["minute", "hour", "day", "month"])
def test_clock_that_begins_at_zero_begins_with_period_zero(per: str) -> None:
    """As the times of recorded traffic often do."""
    calendar = Calendar(per)
    first, end = calendar.bounds(0)
    assert (first, calendar.period_at(0), calendar.period_at(end - 1), calendar.period_at(end)) == (0, 0, 0, 1)


@pytest.mark.parametrize("second", [float("nan"), float("-inf"), -1e18, -1.0, 0.0, 1e12, 1e18, float("inf")])
def test_moment_that_no_clock_should_show_has_a_period(second: float) -> None:
    for per in ("minute", "hour", "day", "month"):
        for zone in ZONES:
            calendar = Calendar(per, zone)
            period = calendar.period_at(second)
            assert 0 <= calendar.previous(period) <= period <= calendar.next(period) < 1 << 40


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("week",), "per"),
        ((None,), "per"),
        (([],), "per"),
        (("day", "Europe/Nowhere"), "tz"),
        (("day", "Europe"), "tz"),
        (("day", ""), "tz"),
        (("day", "/etc/localtime"), "tz"),
        (("day", "../UTC"), "tz"),
        (("day", "localtime"), "tz"),
        (("day", "a\0b"), "tz"),
        (("day", "x" * 5000), "tz"),
        (("day", "\ud800"), "tz"),
        (("day", 3), "tz"),
        (("month", "UTC", 0), "anchor"),
        (("month", "UTC", 32), "anchor"),
        (("day", "UTC", 24), "anchor"),
        (("hour", "UTC", 60), "anchor"),
        (("minute", "UTC", -1), "anchor"),
        (("day", "UTC", True), "anchor"),
        (("day", "UTC", 1.0), "anchor"),
        (("day", "UTC", "4"), "anchor"),
    ],
)
def test_invalid_calendar_is_refused_by_the_name_of_the_field(arguments: tuple[str, str, int], field: str) -> None:
    with pytest.raises(InvalidParameter) as raised:
        Calendar(*arguments)
    assert raised.value.parameter == field


@pytest.mark.parametrize("period", [-1, 1 << 60, 1.5, True])
def test_bounds_of_an_impossible_period_are_refused(period: int) -> None:
    with pytest.raises(InvalidParameter, match="period must be an integer"):
        Calendar("month").bounds(period)
