"""A counter with windows: every event is counted in one window, whatever clocks, threads and signals do."""

from collections.abc import Callable
from functools import partial
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.client.local_windows import spread_of
from countless.core.messages import SiteId
from countless.core.triggers import EveryNth
from countless.errors import InvalidParameter
from countless.wire.keys import Key
from support.interrupts import interrupt, is_free, points, run_until
from support.local_counters import RecordingCounter, together
from support.local_windows import MINUTE, RecordedWindows, name


def test_event_is_counted_in_the_window_that_the_clock_shows(kind: str) -> None:
    recorded = RecordedWindows(kind)
    assert (recorded.windows.counted, recorded.counts()) == (0, {})
    for minute, n in ((0, 1), (0, 5), (1, 1), (3, 0), (3, 2), (1, 1)):
        recorded.now = (MINUTE + minute) * 60.0 + 59.9
        recorded.windows.add(n)
    assert recorded.counts() == {name(MINUTE): 6, name(MINUTE + 1): 2, name(MINUTE + 3): 2}
    assert recorded.windows.counted == 2
    recorded.now += 60
    assert recorded.windows.counted == 0


@pytest.mark.parametrize("n", [-1, True, 1.0, "1", None, 1 << 129])
def test_invalid_increment_is_refused_and_changes_nothing(n: object) -> None:
    recorded = RecordedWindows()
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="n = "):
            recorded.windows.add(n)  # type: ignore[arg-type]
        assert recorded.counts() == {}
    recorded.windows.add()
    with pytest.raises(InvalidParameter, match="n = "):
        recorded.windows.add(n)  # type: ignore[arg-type]
    assert recorded.counts() == {name(MINUTE): 1}


def test_window_is_announced_finished_and_removed(kind: str) -> None:
    recorded = RecordedWindows(kind, spread=0.5)
    assert recorded.windows.seconds_to_tick(0.0) == inf
    recorded.windows.add(7)
    recorded.pass_time(recorded.windows.seconds_to_tick(0.0))
    assert recorded.tick() == name(MINUTE + 1)
    assert recorded.counters[name(MINUTE + 1)].announced
    recorded.pass_time(60 - recorded.now % 60)
    recorded.windows.add(2)
    assert recorded.windows.seconds_to_tick(recorded.monotonic) == pytest.approx(3.0)
    recorded.pass_time(3.01)
    assert recorded.tick(leave=False) is None
    assert (recorded.finished, recorded.left) == ([name(MINUTE)], {})
    recorded.now -= 60
    recorded.windows.add()  # the window of this clock is finished
    recorded.windows.left(MINUTE)
    assert recorded.left == {name(MINUTE): 7}
    assert recorded.counts() == {name(MINUTE): 7, name(MINUTE + 1): 3}


def test_window_after_one_without_events_is_not_announced() -> None:
    recorded = RecordedWindows()
    recorded.windows.add(0)
    recorded.pass_time(59)
    assert recorded.tick() is None
    recorded.pass_time(61)
    assert recorded.tick() is None
    assert (recorded.left, recorded.windows.seconds_to_tick(recorded.monotonic)) == ({name(MINUTE): 0}, inf)


def test_add_after_close_is_refused(kind: str) -> None:
    recorded = RecordedWindows(kind)
    recorded.windows.add(3)
    with recorded.lock:
        recorded.windows.close()
        recorded.counters[name(MINUTE)].close()
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="has not been closed"):
            recorded.windows.add()
        recorded.pass_time(60)
    assert recorded.counts() == {name(MINUTE): 3}


def test_windows_of_a_closed_client_are_not_finished_once_more() -> None:
    """They leave together, also the present one. The edge may come before all of them are acknowledged."""
    recorded = RecordedWindows()
    recorded.windows.add()
    recorded.windows.close()
    recorded.windows.left(MINUTE)
    recorded.pass_time(120)
    assert recorded.tick() is None
    assert recorded.finished == []
    assert recorded.windows.seconds_to_tick(recorded.monotonic) == inf


def test_windows_begin_again_in_a_forked_child(kind: str) -> None:
    recorded = RecordedWindows(kind)
    recorded.windows.add(3)
    parents = recorded.counters.pop(name(MINUTE))
    parents.close()
    recorded.windows.reset(0.5)
    recorded.windows.add(2)
    assert (parents.counted, recorded.counts()) == (3, {name(MINUTE): 2})


def test_spread_differs_between_sites_and_between_series() -> None:
    spreads = {spread_of(SiteId("web", number), f"c{number}") for number in range(1000)}
    assert len(spreads) == 1000
    assert all(0 <= spread < 1 for spread in spreads)
    assert all(sum(start <= spread < start + 0.1 for spread in spreads) > 50 for start in (0.0, 0.3, 0.6, 0.9))
    assert spread_of(SiteId("web", 1), "a") == spread_of(SiteId("web", 1), "a")


@given(st.lists(st.tuples(st.sampled_from([0, 0.5, 20, 61, -61, 3600, -7200]), st.integers(0, 3), st.booleans())))
def test_all_events_are_in_windows_once_whatever_the_clock_does(steps: list[tuple[float, int, bool]]) -> None:
    recorded = RecordedWindows(spread=0.5)
    total = 0
    for jump, n, ticks in steps:
        recorded.pass_time(max(jump, 0))
        recorded.now += min(jump, 0)
        recorded.windows.add(n)
        total += n
        if ticks:
            recorded.tick()
        assert sum(recorded.counts().values()) == total
    assert list(recorded.left) == sorted(recorded.left)


# Interrupts


def unless_locked(recorded: RecordingCounter | RecordedWindows, job: Callable[[], object]) -> Callable[[], None]:
    """What another thread does, which cannot do it while this one has the lock."""

    def run() -> None:
        if is_free(recorded.lock):
            job()

    return run


def test_event_is_in_the_final_count_or_its_add_raises_wherever_the_counter_is_closed(kind: str) -> None:
    """Another thread closes it, when it can take the lock."""
    outcomes = set()
    for n in (1, 7):
        for point in points():
            recording = RecordingCounter(kind, EveryNth(3))
            recording.counter.add(2)
            refused = False
            try:
                if not run_until(
                    partial(recording.counter.add, n), point, unless_locked(recording, recording.counter.close)
                ):
                    break
            except InvalidParameter:
                refused = True
            if recording.counter.open:
                continue
            outcomes.add(refused)
            assert recording.counter.count == (2 if refused else 2 + n)
            assert recording.record is None or recording.record.count == recording.counter.count
            recording.counter.reset(SiteId("s", 2), 1)
            assert recording.counter.count == (1 if refused else 1 + n)
            with pytest.raises(InvalidParameter):
                recording.counter.add()
            assert is_free(recording.lock)
    assert outcomes == {False, True}


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("step", [1, 5])
def test_event_is_counted_once_wherever_its_window_is_finished(kind: str, n: int, step: int) -> None:
    """The thread is stopped anywhere in `add`, and meanwhile the window ends, is finished, and its record reused."""
    windows = set()
    for point in points():
        recorded = RecordedWindows(kind, trigger=EveryNth(step))
        recorded.windows.add(3)

        def finish(recorded: RecordedWindows = recorded) -> None:
            recorded.pass_time(61)
            recorded.tick()
            recorded.windows.add(100)

        if not run_until(partial(recorded.windows.add, n), point, unless_locked(recorded, finish)):
            break
        if not recorded.left:
            continue
        counts = recorded.counts()
        windows.add(counts[name(MINUTE)])
        assert counts.keys() == {name(MINUTE), name(MINUTE + 1)}
        assert sum(counts.values()) == 103 + n
        if recorded.file is not None:
            assert {str(key): record.count for key, record in recorded.file.records(Key).items()} == {
                name(MINUTE + 1): counts[name(MINUTE + 1)]
            }
        recorded.windows.add(50)
        assert recorded.windows.counted == counts[name(MINUTE + 1)] + 50
        assert is_free(recorded.lock)
    assert windows == {3, 3 + n}
    assert point >= 3


@pytest.mark.parametrize("at_the_edge", [False, True])
def test_interrupted_add_leaves_windows_consistent(kind: str, at_the_edge: bool) -> None:
    for point in points():
        recorded = RecordedWindows(kind)
        recorded.windows.add(3)
        recorded.pass_time(60.0 if at_the_edge else 0.0)
        if not run_until(recorded.windows.add, point, interrupt):
            break
        assert is_free(recorded.lock)
        assert sum(recorded.counts().values()) in (3, 4)
        before = sum(recorded.counts().values())
        recorded.windows.add()
        recorded.windows.add(5)
        assert recorded.windows.counted + (3 if at_the_edge else 0) == before + 6
    assert point > 3


@pytest.mark.parametrize("passes", [0, 60])
def test_signal_handler_that_counts_anywhere_in_add_loses_nothing(kind: str, passes: int) -> None:
    """It may also find that the next window has begun."""
    for point in points():
        recorded = RecordedWindows(kind)
        recorded.windows.add(3)
        recorded.pass_time(60)

        def handler(recorded: RecordedWindows = recorded) -> None:
            recorded.pass_time(passes)
            recorded.windows.add(100)
            recorded.windows.add()

        interrupted = run_until(recorded.windows.add, point, handler)
        assert sum(recorded.counts().values()) == (105 if interrupted else 4)
        recorded.windows.add()
        last = name(MINUTE + (2 if interrupted and passes else 1))
        assert recorded.counts()[last] in ((102, 103) if interrupted and passes else (103, 2))
        if not interrupted:
            break
    assert point > 5


@pytest.mark.usefixtures("frequent_switches")
def test_threads_that_count_across_edges_lose_nothing(kind: str) -> None:
    recorded = RecordedWindows(kind, trigger=EveryNth(50))

    def count_events() -> None:
        for number in range(2000):
            recorded.windows.add()
            if number % 50 == 0:
                recorded.pass_time(7.0)
                recorded.tick()

    together(*[count_events] * 4)
    counts = recorded.counts()
    assert sum(counts.values()) == 8000
    assert len(counts) > 2
    assert list(recorded.left) == sorted(recorded.left)
