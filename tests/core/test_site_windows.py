"""Windows at a site: each event is in one window, whatever the clock does, and every window is finished once."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.calendar import PERIODS, Calendar
from countless.core.periods.site import BELIEVED_AFTER_S, MARGIN_S, MIN_LEAD, SitePeriods

NOW = 30_000_000  # a minute, by its number
DAY_S = 86_400.0


@dataclass
class Window:
    period: int
    events: list[int] = field(default_factory=list)
    finished: bool = False


def minutes(spread: float = 0.0) -> SitePeriods[Window]:
    return SitePeriods(Calendar("minute"), Window, spread)


def at(period: int, second: float = 0.0) -> float:
    return period * 60 + second


def has_events(window: Window) -> bool:
    return bool(window.events)


def test_event_belongs_to_the_window_that_the_clock_shows() -> None:
    site = minutes()
    for period in (NOW, NOW + 1, NOW + 5, NOW + 2, NOW):
        assert site.enter(at(period)) is site.enter(at(period, 59.9)) is site.states[period]
        assert (site.period, site.starts_at, site.ends_at) == (period, at(period), at(period + 1))
    assert sorted(site.states) == [NOW, NOW + 1, NOW + 2, NOW + 5]


def test_windows_are_finished_in_ascending_order_after_their_end() -> None:
    site = minutes()
    for period in (NOW + 2, NOW, NOW + 1):
        site.enter(at(period))
    assert site.finish(at(NOW, 59.9), 0) == {}
    assert list(site.finish(at(NOW + 2), 60.1)) == [NOW, NOW + 1]
    assert (site.watermark, list(site.states)) == (NOW + 2, [NOW + 2])


def test_clock_that_is_put_back_returns_to_a_window_that_is_not_finished() -> None:
    site = minutes(spread=1.0)
    first = site.enter(at(NOW))
    assert site.enter(at(NOW + 1)) is not first
    assert site.finish(at(NOW + 1, 5.9), 0) == {}
    assert site.enter(at(NOW, 30)) is first
    assert site.finish(at(NOW + 1, 6), 1) == {first.period: first}
    assert site.enter(at(NOW, 30)) is site.states[NOW + 1]
    assert (site.period, site.starts_at, site.ends_at) == (NOW + 1, -inf, at(NOW + 2))


def test_window_that_was_entered_last_can_be_finished_while_nothing_is_counted() -> None:
    site = minutes()
    first = site.enter(at(NOW))
    assert site.finish(at(NOW + 7), 0) == {first.period: first}
    assert not site.states
    assert site.enter(at(NOW + 7)).period == NOW + 7


@pytest.mark.parametrize("per", PERIODS)
def test_jump_ahead_of_800_days_for_a_minute_finishes_nothing(per: str) -> None:
    calendar = Calendar(per)
    site = SitePeriods(calendar, Window)
    start, end = calendar.bounds(calendar.period_at(at(NOW)))
    before = site.enter(start)
    ahead: set[int] = set()
    for second in range(59):
        now = start + (800 * DAY_S if second else 0) + second
        ahead.add(site.enter(now).period)
        assert site.finish(now, monotonic=float(second)) == {}
    assert site.enter(end - 1) is before
    assert len(ahead - {before.period}) >= 1
    assert site.finish(end, monotonic=float(end - start)) == {before.period: before}
    assert set(site.states) == ahead - {before.period}


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_jump_ahead_is_believed_after_it_has_lasted(spread: float) -> None:
    site = SitePeriods(Calendar("hour"), Window, spread)
    before, wait_s = site.enter(at(NOW)), BELIEVED_AFTER_S * (1 + spread)
    assert site.finish(at(NOW), 0.0) == {}
    to_finish_s = site.seconds_to_finish(at(NOW), 0.0)
    for second in range(1, 1 + int(wait_s)):
        jumped = at(NOW + 1_000_000, second)
        assert site.finish(jumped, second) == {}
        assert site.seconds_to_finish(jumped, second) == to_finish_s - second
    assert site.finish(at(NOW + 1_000_000, 1 + wait_s), 1 + wait_s) == {before.period: before}


def test_jump_ahead_that_is_as_small_as_a_delay_is_believed_at_once() -> None:
    site = minutes()
    before = site.enter(at(NOW))
    assert site.finish(at(NOW, 55), 0.0) == {}
    assert site.finish(at(NOW + 1), 0.0) == {before.period: before}


def test_next_window_is_prepared_once_if_the_present_one_is_needed() -> None:
    for spread, second in ((0.0, 58.5), (1.0, 54.0)):
        site = minutes(spread)
        site.enter(at(NOW)).events.append(1)
        assert site.seconds_to_prepare(at(NOW)) == pytest.approx(second)
        assert site.prepare(at(NOW, second - 0.1), has_events) is None
        prepared = site.prepare(at(NOW, second), has_events)
        assert prepared == NOW + 1
        state = site.states[NOW + 1]
        assert site.prepare(at(NOW, second), has_events) is None
        assert site.seconds_to_prepare(at(NOW, second)) == pytest.approx(60.0)
        assert site.enter(at(NOW + 1)) is state


def test_window_after_one_without_events_is_not_prepared() -> None:
    site = minutes()
    site.enter(at(NOW))
    assert site.prepare(at(NOW, 59), has_events) is None
    assert site.seconds_to_prepare(at(NOW, 59)) == pytest.approx(59.5)
    assert list(site.states) == [NOW]
    assert minutes().prepare(at(NOW, 59), has_events) is None  # nothing was ever counted


def test_margins_are_a_tenth_of_a_window_and_at_most_a_quarter_of_an_hour() -> None:
    lengths = {"minute": 60, "hour": 3600, "day": DAY_S, "month": 28 * DAY_S}
    assert {per: min(900.0, length / 10) for per, length in lengths.items()} == MARGIN_S


def utc(year: int, month: int, day: int, hour: int = 0) -> float:
    return datetime(year, month, day, hour, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("tz", "start", "hours"),
    [("Europe/Berlin", utc(2025, 3, 29, 23), 23), ("Europe/Berlin", utc(2025, 10, 25, 22), 25), ("UTC", 0.0, 24)],
)
def test_days_of_23_and_25_hours_are_prepared_and_finished_at_their_own_ends(tz: str, start: float, hours: int) -> None:
    start = start or utc(2025, 3, 30)
    site = SitePeriods(Calendar("day", tz), Window, spread=1.0)
    day, end = site.enter(start), start + hours * 3600
    day.events.append(1)
    assert site.enter(end - 0.1) is day
    assert site.seconds_to_prepare(start) == hours * 3600 - MARGIN_S["day"]
    assert site.finish(end + MARGIN_S["day"] - 0.1, 0.0) == {}
    assert site.enter(end).period == day.period + 1
    assert site.finish(end + MARGIN_S["day"], 0.1) == {day.period: day}


def test_watermark_is_never_a_day_that_the_zone_skipped() -> None:
    calendar = Calendar("day", "Pacific/Apia")
    skipped = next(day for day in range(15_330, 15_345) if len(set(calendar.bounds(day))) == 1)
    site = SitePeriods(calendar, Window)
    before = site.enter(calendar.bounds(skipped - 1)[0])
    assert site.finish(calendar.bounds(skipped)[1], 0.0) == {before.period: before}
    assert site.enter(0.0).period == skipped + 1


ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"]
MOMENTS = [utc(2025, 3, 29, 22), utc(2025, 10, 25, 21), utc(2011, 12, 29, 12), utc(2026, 1, 31, 23)]
JUMPS = st.one_of(
    st.just(0.0),
    st.floats(-10.0, 10.0),
    st.sampled_from([-800 * DAY_S, -DAY_S, -3600.0, -60.0, 60.0, 3600.0, DAY_S, 800 * DAY_S]),
)
# Seconds that pass by the monotonic clock; a jump of the other one; how many events; whether the session ticks.
STEPS = st.lists(
    st.tuples(st.floats(0.0, 4000.0), JUMPS, st.integers(0, 2), st.booleans()),
    max_size=40,
)


@given(st.sampled_from(PERIODS), st.sampled_from(ZONES), st.sampled_from(MOMENTS), st.floats(0, 1), STEPS)
def test_each_event_is_in_one_window_and_no_window_is_used_after_it_is_finished(
    per: str, tz: str, start: float, spread: float, steps: list[tuple[float, float, int, bool]]
) -> None:
    calendar = Calendar(per, tz)
    site, made, finished = site_that_records(calendar, spread)
    monotonic, clock, events = 0.0, start, 0
    for passed, jump, count, ticks in steps:
        monotonic, clock = monotonic + passed, clock + passed + jump
        shown = calendar.period_at(clock)
        for _ in range(count):
            window, events = site.enter(clock), events + 1
            window.events.append(events)
            assert not window.finished
            last_finished = finished[-1].period if finished else -1
            assert window.period == (shown if shown > last_finished else calendar.next(last_finished))
        if ticks:
            present = site.present_at(clock)
            prepared = site.prepare(clock, has_events)
            assert prepared is None or (prepared == calendar.next(present) and site.states[present].events)
            for window in site.finish(clock, monotonic).values():
                assert calendar.bounds(window.period)[1] + spread * MARGIN_S[per] <= clock
                window.finished = True
                finished.append(window)
        assert [window.period for window in finished] == sorted({window.period for window in finished})
        assert sorted(made) == sorted([*(window.period for window in finished), *site.states])
    # Afterwards the clock passes every window and stays there: all are finished, with all events.
    last = calendar.bounds(max(site.states, default=calendar.period_at(clock)))[1] + 10 * DAY_S
    for second in range(0, int(2 * BELIEVED_AFTER_S) + 60, 60):
        finished += site.finish(last + second, monotonic + second).values()
    assert not site.states
    assert sorted(event for window in finished for event in window.events) == list(range(1, events + 1))


def site_that_records(calendar: Calendar, spread: float) -> tuple[SitePeriods[Window], list[int], list[Window]]:
    made: list[int] = []

    def new(period: int) -> Window:
        made.append(period)
        return Window(period)

    return SitePeriods(calendar, new, spread), made, []


@given(st.floats(0, 1), st.sampled_from(["minute", "hour", "day"]))
def test_ticks_at_the_times_that_are_asked_for_prepare_and_finish_every_window_in_time(spread: float, per: str) -> None:
    calendar = Calendar(per)
    site, made, finished = site_that_records(calendar, spread)
    first = calendar.period_at(at(NOW))
    start, end = calendar.bounds(first)[0], calendar.bounds(first + 4)[0] + MARGIN_S[per] + 1
    now, ticks = float(start), 0
    while now < end:
        site.enter(now).events.append(ticks)
        prepared = site.prepare(now, has_events)
        if prepared is not None:
            assert MIN_LEAD * 0.99 <= (calendar.bounds(prepared)[0] - now) / MARGIN_S[per] <= 1.01
        for window in site.finish(now, now - start).values():
            assert 0 <= now - calendar.bounds(window.period)[1] <= MARGIN_S[per] * 1.01
            finished.append(window)
        next_tick_s = min(site.seconds_to_prepare(now), site.seconds_to_finish(now, now - start))
        now += max(1e-3, min(next_tick_s, site.ends_at - now))
        ticks += 1
    assert [window.period for window in finished] == [first, first + 1, first + 2, first + 3]
    assert made == [first, first + 1, first + 2, first + 3, first + 4]
    assert ticks <= 20  # three for each window, and some because of rounding
