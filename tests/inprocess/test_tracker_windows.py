"""`Tracker` with windows: every event in one window, against an exact shadow, under clocks that jump."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless import Answer, InvalidParameter, Tracker
from countless.core.answer import State, within
from countless.core.calendar import Calendar
from countless.core.periods.site import MARGIN_S
from countless.core.periods.window import TotalAnswer, WindowState

HOUR_S = 3600
START = Calendar("hour").moment("2026-11-16T10:00Z")


class Clock:
    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def tracker_at(now: float = START, **parameters: Any) -> tuple[Tracker, Clock]:
    clock = Clock(now)
    return Tracker(**{"sites": 3, "alpha": 0.1, "per": "hour", "seed": 1, **parameters}, clock=clock), clock


def test_questions_that_people_ask() -> None:
    tracker, clock = tracker_at(alpha=0.01)
    tracker.site(0).add(5)
    clock.now += HOUR_S
    tracker.site(1).add(2)
    clock.now += 60
    tracker.site(2).add()
    assert [tracker.window(name).estimate for name in ("now", "last", "today", "yesterday")] == [3, 5, 8, 0]
    assert tracker.window("2026-11-16T10:30").estimate == 5
    assert tracker.window("last").exact
    assert tracker.window("last").complete
    assert not tracker.window("now").complete
    assert [(window.start, window.estimate) for window in tracker.windows] == [(START, 5), (START + HOUR_S, 3)]
    assert [str(window.state) for window in tracker.windows] == ["closed", "open"]
    assert (tracker.total, tracker.answer.estimate, tracker.answer.state) == (8, 8, State.EXACT)
    assert isinstance(tracker.answer, TotalAnswer)
    assert list(tracker.answer.as_dict()) == list(Tracker(sites=1).answer.as_dict())
    assert (tracker.rolling("30s").lower, tracker.rolling("90s").estimate, tracker.rolling("7d").upper) == (1, 3, 8)
    assert tracker.rate("1m").upper == pytest.approx(3 / 60)
    assert tracker.rate().estimate == pytest.approx(3 / 300)


def test_site_sends_join_and_final_count_in_each_window_in_which_it_counts() -> None:
    """Below the floor nothing else is sent: 2 joins, 2 triggers and 2 departures in the first window."""
    tracker, clock = tracker_at(sites=5, floor=1000)
    tracker.site(0).add(3)
    tracker.site(1).add(4)
    assert (tracker.messages.up, tracker.messages.down, tracker.messages.bytes) == (2, 2, None)
    clock.now += HOUR_S
    tracker.site(1).add(4)
    assert tracker.messages.total == 6  # the first window is not closed yet
    assert tracker.window("last").estimate == 7
    assert (tracker.messages.up, tracker.messages.down) == (5, 3)


def test_bytes_are_counted_over_all_windows() -> None:
    tracker, clock = tracker_at(count_bytes=True)
    tracker.site(0).add()
    before = tracker.messages.bytes
    clock.now += HOUR_S
    tracker.site(0).add()
    assert before is not None
    assert tracker.messages.bytes == 2 * before
    assert tracker.window("last").estimate == 1
    assert tracker.messages.bytes > 2 * before


def test_window_is_closed_by_events_some_time_after_its_end() -> None:
    tracker, clock = tracker_at(floor=1000)
    tracker.site(0).add()
    clock.now += HOUR_S
    tracker.site(1).add()
    messages = tracker.messages.up
    clock.now += MARGIN_S["hour"] - 1
    tracker.site(1).add()
    assert tracker.messages.up == messages
    clock.now += 1
    tracker.site(1).add()
    assert tracker.messages.up == messages + 1


def test_clock_that_is_put_back_returns_to_a_window_that_is_not_closed() -> None:
    tracker, clock = tracker_at(scheme="exact")
    tracker.site(0).add()
    clock.now += HOUR_S
    tracker.site(0).add(10)
    clock.now -= 5
    tracker.site(0).add(100)
    clock.now += 5
    assert [window.estimate for window in tracker.windows] == [101, 10]


def test_no_event_is_counted_in_a_closed_window() -> None:
    tracker, clock = tracker_at(scheme="exact")
    tracker.site(0).add()
    clock.now += HOUR_S
    assert tracker.window("last").estimate == 1
    clock.now -= 5
    for site in range(3):  # also by a site that was not in it
        tracker.site(site).add(10)
    assert tracker.window("now").estimate == 30  # where events are counted, whatever the clock shows
    clock.now += 5
    assert [window.estimate for window in tracker.windows] == [1, 30]


def test_replayed_times_may_begin_at_zero() -> None:
    tracker, clock = tracker_at(0, scheme="exact")
    for hour in range(3):
        clock.now = hour * HOUR_S
        tracker.site(0).add(hour + 1)
    assert [(window.start, window.estimate) for window in tracker.windows] == [(0, 1), (HOUR_S, 2), (2 * HOUR_S, 3)]


def test_floor_is_a_third_of_the_window_before_or_as_given() -> None:
    tracker, clock = tracker_at(alpha=0.05, scheme="deterministic")
    given_floor, given_clock = tracker_at(alpha=0.05, scheme="deterministic", floor=50_000)
    for each, its_clock in ((tracker, clock), (given_floor, given_clock)):
        each.site(0).add(100_000)
        its_clock.now += HOUR_S
        each.site(0).add(1)
    floors = tracker._debug_state().answer.floor, given_floor._debug_state().answer.floor
    assert 30_000 <= floors[0] <= 33_333  # the window before is not closed yet: a third of its lower bound
    assert floors[1] == 50_000
    clock.now += HOUR_S
    assert tracker.window("last").estimate == 1
    assert tracker._debug_state().answer.floor == 0


@pytest.mark.parametrize(("day", "hours"), [("2025-03-30", 23), ("2025-10-26", 25), ("2025-10-27", 24)])
def test_days_on_which_clocks_change(day: str, hours: int) -> None:
    calendar = Calendar("day", "Europe/Berlin")
    tracker, clock = tracker_at(calendar.moment(day) - 30, per="day", tz="Europe/Berlin", scheme="exact")
    per_hour, _ = Tracker(sites=1, per="hour", tz="Europe/Berlin", scheme="exact", clock=clock), None
    for _ in range(27 * 60):
        clock.now += 60
        tracker.site(0).add()
        per_hour.site(0).add()
    assert tracker.window(day).estimate == hours * 60
    assert per_hour.window(day).estimate == hours * 60
    assert {window.estimate for window in per_hour.windows[1:-1]} == {60}


def test_oldest_windows_are_dropped_and_stay_in_the_total() -> None:
    tracker, clock = tracker_at(keep=2, scheme="exact")
    for count in (1, 2, 4, 8):
        tracker.site(0).add(count)
        clock.now += HOUR_S
    assert [window.estimate for window in tracker.windows] == [4, 8, 0]
    assert (tracker.total, tracker.answer.estimate) == (15, 15)
    dropped = tracker.window("2026-11-16T11:30")
    assert (dropped.lower, dropped.upper, dropped.known_since) == (0, 3, START + 2 * HOUR_S)
    assert tracker.window("last").known_since is None
    assert (tracker.rolling("3h").lower, tracker.rolling("3h").upper) == (12, 14)  # answers are recorded for longer


def test_idle_windows_cost_nothing_and_do_not_change_the_floor() -> None:
    tracker, clock = tracker_at()
    tracker.site(0).add(1000)
    assert tracker.window("now").upper >= 1000
    clock.now += 100 * HOUR_S
    messages = tracker.messages
    assert tracker.window("last").estimate == 0
    assert tracker.messages.up == messages.up + 1
    clock.now += HOUR_S
    tracker.site(0).add(1)
    assert tracker._debug_state().answer.floor == 333
    assert tracker.windows[0].estimate == 1000


def test_sites_come_and_go() -> None:
    tracker, clock = tracker_at(scheme="exact")
    site = tracker.add_site("late")
    site.add(3)
    clock.now += HOUR_S
    site.add(4)
    assert (site.count, tracker.remove_site("late")) == (7, 7)
    with pytest.raises(InvalidParameter, match="has not been removed"):
        site.add()
    assert site.count == tracker.total == 7
    tracker.add_site("late").add(5)
    assert (tracker.site("late").count, site.count, tracker.total) == (5, 7, 12)
    assert [window.estimate for window in tracker.windows] == [3, 9]
    with pytest.raises(InvalidParameter):
        tracker.site("late").add(-1)


def test_listener_follows_the_total_over_windows_and_may_count_and_read() -> None:
    tracker, clock = tracker_at(alpha=0.2, scheme="deterministic")
    received = list[Answer]()

    @tracker.on_change
    def feed_back(answer: Answer) -> None:
        received.append(answer)
        if len(received) % 3 == 0:
            tracker.site(len(received) % 3).add()
        if len(received) % 10 == 0:
            tracker.window("last")

    for event in range(3000):
        clock.now += 10
        tracker.site(event % 3).add(1 + event % 5)
    for before, after in pairwise(received):  # when a window is closed, the total is better known, and may be less
        assert before.estimate < after.estimate or before.estimate > after.estimate == after.upper
    assert received[-1].estimate == tracker.answer.estimate
    assert tracker.answer.contains(tracker.total)
    assert sum(window.estimate for window in tracker.windows[:-1]) <= tracker.total


def test_threads_count_across_edges() -> None:
    tracker, clock = tracker_at(sites=4, scheme="deterministic", per="minute")

    def count(name: int) -> None:
        for _ in range(3000):
            clock.now += 0.05  # lost updates only make it slower
            tracker.site(name).add()

    threads = [Thread(target=count, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.now += 60
    assert tracker.total == sum(window.estimate for window in tracker.windows) == 12_000


# An exact shadow


class Shadow:
    """The rule of the docs, written down as slowly as possible."""

    def __init__(self, calendar: Calendar) -> None:
        self.calendar = calendar
        self.counts: Counter[int] = Counter()
        self.open: set[int] = set()
        self.closed: set[int] = set()

    def add(self, now: float, n: int) -> None:
        self.close(now - MARGIN_S[self.calendar.per])
        self.counts[self.enter(now)] += n

    def enter(self, now: float) -> int:
        period = max([self.calendar.period_at(now), *(self.calendar.next(each) for each in self.closed)])
        self.open.add(period)
        return period

    def close(self, moment: float) -> None:
        ended = {period for period in self.open if self.calendar.bounds(period)[1] <= moment}
        self.open -= ended
        self.closed |= ended


steps = st.lists(
    st.tuples(
        st.sampled_from(["add"] * 6 + ["read"]),
        st.one_of(st.floats(0, 400), st.sampled_from([0.0, HOUR_S, -1.0, -30.0, -HOUR_S, 30 * HOUR_S, -30 * HOUR_S])),
        st.integers(0, 3),
        st.integers(0, 300),
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=80)
@given(st.sampled_from(["deterministic", "auto"]), st.sampled_from([None, 0, 500]), steps)
def test_clock_that_jumps(scheme: str, floor: int | None, steps: list[tuple[str, float, int, int]]) -> None:
    """`delta` is 1e-9, so a failure is a bug."""
    tracker, clock = tracker_at(sites=4, alpha=0.2, delta=1e-9, scheme=scheme, floor=floor)
    shadow = Shadow(Calendar("hour"))
    for kind, jump, site, n in steps:
        clock.now += jump
        if kind == "add":
            tracker.site(site).add(n)
            shadow.add(clock.now, n)
        else:
            shadow.close(clock.now)
            shadow.enter(clock.now)
            windows = {window.period: window for window in tracker.windows}
            for period in shadow.closed | shadow.open:
                count, window = shadow.counts[period], windows.get(period)
                assert (window is None) == (period in shadow.closed and not count)
                if window is not None:
                    assert window.lower <= count <= window.upper
                    assert (window.state is WindowState.CLOSED) == (period in shadow.closed)
                    assert window.state is WindowState.OPEN or window.exact
        assert tracker.total == shadow.counts.total()
        assert tracker.answer.contains(tracker.total)


def traffic(events: int, sites: int) -> Iterator[tuple[float, int]]:
    """A trace with whole seconds, a few busy sites, and traffic that rises and falls over the day."""
    random, now = Random(5), START  # noqa: S311
    weights = [1 / (site + 1) for site in range(sites)]
    for site in random.choices(range(sites), weights, k=events):
        now += random.expovariate(0.2 + 0.15 * (now % 86_400) / 86_400)
        yield float(int(now)), site


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["deterministic", "auto"])
def test_replayed_trace_is_within_its_bounds_at_every_reading(scheme: str) -> None:
    """`delta` is 1e-9, so a failure is a bug. The bounds of a rolling count may leave out its first second."""
    sites, alpha, floor = 12, 0.1, 200
    tracker, clock = tracker_at(sites=sites, alpha=alpha, delta=1e-9, floor=floor, scheme=scheme)
    hours, counts, random = Calendar("hour"), Counter[int](), Random(6)  # noqa: S311
    times: list[float] = []
    for now, site in traffic(25_000, sites):
        clock.now = now
        tracker.site(site).add()
        period = hours.period_at(now)
        counts[period] += 1
        times.append(now)
        if random.random() < 0.02:
            window = tracker._debug_state().answer
            assert within(window.estimate, alpha, counts[period], floor)
            present, last = tracker.window("now"), tracker.window("last")
            assert present.lower <= counts[period] <= present.upper
            assert (last.estimate, last.exact) == (counts[hours.previous(period)], True)
            length = random.choice([60, 900, 3600, 9000, 86_400])
            rolling = tracker.rolling(f"{length}s")
            assert rolling.lower <= len(times) - bisect_left(times, now - length)
            assert rolling.upper >= len(times) - bisect_right(times, now - length)
            assert rolling.lower <= rolling.estimate <= rolling.upper
            assert tracker.answer.contains(len(times))
    assert {window.period: window.estimate for window in tracker.windows[:-1]} == {
        period: count for period, count in counts.items() if period < hours.period_at(clock.now)
    }
    assert tracker.messages.total < 0.8 * len(times)


@pytest.mark.slow
def test_rolling_count_is_narrow_where_answers_are_recorded() -> None:
    """The last 15 minutes, of hours: to within a minute of traffic and the error of the open window."""
    tracker, clock = tracker_at(sites=10, alpha=0.02, scheme="deterministic")
    for event in range(200_000):
        clock.now = START + event / 20
        tracker.site(event % 10).add()
    rolling = tracker.rolling("15m")
    assert rolling.lower <= 18_000 <= rolling.upper
    assert rolling.upper - rolling.lower <= 2 * 0.0205 * (2 * tracker.window("now").upper) + 2 * 60 * 20


# Input that is refused


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"per": "week"}, "per"),
        ({"per": 3600}, "per"),
        ({"per": "hour", "tz": "Mars/Base"}, "tz"),
        ({"per": "hour", "anchor": 60}, "anchor"),
        ({"per": "hour", "floor": -1}, "floor"),
        ({"per": "hour", "floor": 1.5}, "floor"),
        ({"per": "hour", "floor": 2**128 + 1}, "floor"),
        ({"per": "hour", "keep": 0}, "keep"),
        ({"per": "hour", "clock": 5}, "clock"),
        ({"tz": "Europe/Berlin"}, "tz"),
        ({"anchor": 3}, "anchor"),
        ({"floor": 10}, "floor"),
        ({"keep": 10}, "keep"),
        ({"clock": lambda: 0.0}, "clock"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^{field} "):
        Tracker(sites=2, **parameters)


@pytest.mark.parametrize("which", ["tomorrow", "", "2026-13-01", 5, None])
def test_unknown_names_of_windows_are_refused(which: Any) -> None:
    with pytest.raises(InvalidParameter, match="window = "):
        tracker_at()[0].window(which)


@pytest.mark.parametrize("over", ["0s", "soon", -5, "11y", None, "5000d"])
def test_spans_out_of_range_are_refused(over: Any) -> None:
    for call in (tracker_at()[0].rolling, tracker_at()[0].rate):
        with pytest.raises(InvalidParameter, match="over = "):
            call(over)


def test_tracker_without_windows_says_how_to_get_them() -> None:
    tracker = Tracker(sites=2)
    calls = (lambda: tracker.window("now"), lambda: tracker.rolling("5m"), tracker.rate, lambda: tracker.windows)
    for call in calls:
        with pytest.raises(InvalidParameter, match="per="):
            call()
