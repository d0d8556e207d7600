"""The rate, this hour, today and bars of a counter without windows: true bounds, and no more than is known."""

from bisect import bisect_right
from itertools import pairwise
from random import Random

import pytest

from countless.core.answer import State
from countless.server.http.answers.increases import Increases
from support.published import ALPHA, Recording

NOON = 1_800_014_400.0  # an hour begins, by UTC


@pytest.mark.parametrize("seed", range(4))
def test_true_counts_are_between_the_bounds_of_all_bars(seed: int) -> None:
    """Five hours of traffic that stops and bursts, with answers anywhere within alpha."""
    random = Random(seed)  # noqa: S311
    recording, moments, busy = Recording(NOON), list[float](), True
    while recording.time < NOON + 5 * 3600 + 30 * 60:
        recording.time += random.expovariate(1 / 3)
        busy ^= random.random() < 0.01
        moments += [recording.time] * (random.randint(0, 9) if busy else 0)
        recording.counter.publish(len(moments) * (1 + ALPHA * random.uniform(-1, 1)))
        recording.recorder.tick()
    for per, number in (("minute", 60), ("hour", 6), ("day", 1)):
        bars = Increases(recording.history, per).bars()
        assert len(bars) == number
        assert all(earlier[1] == later[0] for earlier, later in pairwise(bars))
        assert [bar[5] for bar in bars] == [*["closed"] * (number - 1), "open"]
        for start, end, lower, estimate, upper, _, since, *_ in bars:
            true = bisect_right(moments, end) - bisect_right(moments, start)
            assert lower <= true <= upper, (seed, per, start)
            assert lower <= estimate <= upper
            assert since is None


def test_bars_of_an_exact_counter_are_known_but_for_a_second_at_their_edges() -> None:
    recording = Recording(NOON)
    for second in range(600):
        recording.time = NOON + second
        recording.counter.publish(3 * second, State.EXACT)
        recording.recorder.tick()
    bars = Increases(recording.history, "minute").bars()
    assert [bar[3] for bar in bars] == [*[180] * 9, 177]  # the last second is not over
    assert {bar[4] - bar[2] for bar in bars} <= {0, 3, 6}
    figure = Increases(recording.history).figures()[0]
    assert figure == {"name": "this-hour", "lower": 1797, "estimate": 1797, "upper": 1797, "since": None}


def test_history_that_begins_in_the_middle_says_since_when() -> None:
    """A coordinator that started at 12:05 with a total of a million knows nothing of the time before."""
    recording = Recording(NOON + 300, new=False)
    for second in range(0, 600, 5):
        recording.time = NOON + 300 + second
        recording.counter.publish(1_000_000 + second, State.EXACT)
        recording.recorder.tick()
    hour, today = Increases(recording.history).figures()
    assert (hour["estimate"], hour["lower"], hour["upper"], hour["since"]) == (595, 595, 595, NOON + 300)
    assert today == {**hour, "name": "today"}
    (bar,) = Increases(recording.history, "hour").bars()
    assert (bar[0], bar[3], bar[6]) == (NOON, 595, NOON + 300)
    assert Increases(recording.history, "minute").bars()[0][0] == NOON + 300


def test_counter_with_a_silent_site_has_no_upper_bounds_until_it_is_back() -> None:
    recording = Recording(NOON)
    for second, total, state in ((0, 0, State.EXACT), (50, 50, State.EXACT), (130, 60, State.DEGRADED)):
        recording.time = NOON + second
        recording.counter.publish(total, state, alpha=0)
        recording.recorder.tick()
    increases = Increases(recording.history)
    assert [(figure["lower"], figure["upper"]) for figure in increases.figures()] == [(60, None)] * 2
    assert increases.rate()["upper"] is None
    assert [bar[4] for bar in increases.bars()] == [None] * 3
    recording.time += 60
    recording.counter.publish(90, State.EXACT)
    bounds = [(bar[2], bar[4]) for bar in Increases(recording.history).bars()]
    assert bounds == [(50, 90), (0, 40), (0, 40), (0, 30)]


def rate_of(
    seconds: int, step: int, add: float, *, alpha: float = 0.0, start: int = 0, idle: int = 0
) -> tuple[int, float]:
    """Over which span, and how many per second, after so many seconds of even traffic and of none."""
    recording, total = Recording(NOON, new=not start), float(start)
    for second in range(0, seconds + idle + 1, step):
        recording.time = NOON + second
        total += add if 0 < second <= seconds else 0
        recording.counter.publish(int(total), State.HOLDING if alpha else State.EXACT, alpha=alpha)
        recording.recorder.tick()
    rate = Increases(recording.history).rate()
    return rate["over"], rate["estimate"]


def test_rate_is_over_the_shortest_span_that_says_something() -> None:
    assert rate_of(7200, 10, 120) == (60, 12.0)
    assert rate_of(40, 1, 12) == (30, 12.0)  # nothing older is known
    assert rate_of(7200, 10, 120, idle=90) == (60, 0.0)  # it has just stopped
    over, rate = rate_of(86_400, 1200, 1)
    assert (over, rate * 3600) == (21_600, 3.0)  # three an hour
    over, rate = rate_of(86_400, 600, 60_000, alpha=0.01, start=100_000_000)  # an hour is less than the error
    assert over == 86_400
    assert rate == pytest.approx(100)


def test_burst_is_shown_as_the_rate_of_the_last_minute() -> None:
    """Its bounds are narrow compared with the burst, though not with the traffic of before."""
    recording, total = Recording(NOON), 0
    for second in range(7320):
        recording.time, total = NOON + second, total + (10 if second < 7200 else 200)
        recording.counter.publish(total, State.HOLDING, alpha=0.01)
        recording.recorder.tick()
    rate = Increases(recording.history).rate()
    assert (rate["over"], rate["estimate"]) == (60, 200)
    assert 150 < rate["lower"] < rate["upper"] < 250


def test_bars_are_as_long_as_the_history_is_worth() -> None:
    for known_s, per in ((600, "minute"), (7200, "hour"), (86_400, "hour"), (4 * 86_400, "day")):
        recording = Recording(NOON)
        recording.recorder.tick()
        recording.time += known_s
        assert [Increases(recording.history, each).per for each in ("", "day", "month")] == [per, "day", per]
