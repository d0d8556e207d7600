"""A small race with all real components. Nothing that depends on speed is asserted."""

import json
import sys
from functools import cache
from pathlib import Path

import pytest

from countless.core.answer import within
from race.__main__ import main
from race.contestants.base import Case
from race.contestants.registry import CONTESTANTS
from race.killed import KILL_AT, losses
from race.play import Result, run
from race.workloads import WORKLOADS, Event, Workload

pytestmark = pytest.mark.slow

SITES, SECONDS, ALPHA = 6, 130.0, 0.05
STEADY = WORKLOADS["steady"](SITES, 600, SECONDS, 3)


@cache
def raced(key: str, workload: Workload = STEADY) -> Result:
    return run(CONTESTANTS[key], workload, Case(workload.sites, workload.counters, ALPHA))


def active(workload: Workload, seconds: float) -> int:
    """Pairs of a site and an interval, over before the end, in which the site counted something."""
    pairs = {(event.site, int(event.time // seconds)) for event in workload}
    return sum((interval + 1) * seconds <= workload.seconds for _, interval in pairs)


@pytest.mark.parametrize("key", CONTESTANTS)
def test_every_contestant_counts_all_events(key: str) -> None:
    result = raced(key)
    assert (result.events, result.dropped) == (len(STEADY), 0)
    assert result.bytes > 0


def test_redis_incr_is_exact_at_every_event() -> None:
    result = raced("redis-incr")
    assert (result.messages, result.answer) == (600, 600)
    assert (result.worst_error, result.worst_age) == (0, 0)


def test_messages_of_flushes_and_scrapes() -> None:
    assert raced("redis-deltas").messages == active(STEADY, 1.0)
    assert raced("prometheus").messages == SITES * 8  # at 15, 30, ... 120 seconds
    assert raced("otel").messages == SITES * 2  # at 60 and at 120
    assert raced("statsd").messages == 600


@pytest.mark.parametrize(("key", "period"), [("redis-deltas", 1), ("prometheus", 15), ("otel", 60), ("statsd", 10)])
def test_flush_knows_exactly_the_events_before_it(key: str, period: int) -> None:
    result = raced(key)
    last = SECONDS // period * period
    assert result.answer == sum(event.time <= last for event in STEADY)
    assert result.worst_error == 1  # the first event, until the first flush
    assert 0 < result.late_error < 1
    assert 0 < result.worst_age <= period


@pytest.mark.parametrize("key", ["deterministic", "countless"])
def test_countless_keeps_its_bound_at_every_event(key: str) -> None:
    result = raced(key)
    assert result.worst_error <= ALPHA
    assert within(result.answer, ALPHA, 600)
    assert SITES <= result.messages < 600 + 3 * SITES


def test_messages_of_deterministic() -> None:
    """One site: it reports at 1, 2, 3, ... and later whenever its count has grown by (1 + alpha)/(1 - alpha)."""
    single = Workload("single", 1, 60.0, [Event(number / 10, 0, (0,)) for number in range(300)])
    result = raced("deterministic", single)
    count, reports = 0, 0
    while count <= 300:
        count = int(count * (1 + ALPHA) / (1 - ALPHA)) + 1
        reports += count <= 300
    assert result.messages == reports + 1  # the first is answered with a trigger
    assert ALPHA < result.worst_error < ALPHA + 0.5 / 10  # its whole allowance, by design; and totals are rounded


@pytest.mark.soak
def test_counters_incremented_together_share_messages() -> None:
    events = [Event(float(second), second % 2, (0, 1, 2)) for second in range(20)]
    workload = Workload("together", 2, 61.0, events)
    assert raced("redis-incr", workload).messages == 60
    assert raced("redis-deltas", workload).messages == 20
    assert raced("otel", workload).messages == 2
    ours = raced("countless", workload)
    assert ours.messages == 20 + 2  # every event is reported so far; each site receives its triggers once, in one frame
    assert ours.heartbeats == 1 + 1  # the last events are at seconds 18 and 19; a heartbeat follows 30 seconds later
    assert ours.worst_error <= ALPHA


@pytest.mark.soak
def test_quota_on_a_stale_answer_admits_too_much() -> None:
    feedback = WORKLOADS["feedback"](SITES, 900, SECONDS, 3)
    exact, ours, stale = (raced(key, feedback).over_quota for key in ("redis-incr", "countless", "otel"))
    assert exact is not None
    assert ours is not None
    assert stale is not None
    quota = feedback.quota * SECONDS
    assert exact * quota <= 1 + 1e-9
    assert ours * quota <= 1 + ALPHA * quota
    assert stale > 0.5  # a minute at three times the rate, of a quota of two minutes


@pytest.mark.soak
def test_losses_after_a_kill() -> None:
    moment = KILL_AT * SECONDS
    counted = sum(event.time <= moment for event in STEADY)
    lost = {key: losses(key, STEADY, Case(SITES, 1, ALPHA)) for key in ("statsd", "countless")}
    assert all(loss.counted_until_then == counted and loss.counted_in_all == 600 for loss in lost.values())
    flushed = sum(event.time <= moment // 10 * 10 for event in STEADY)
    assert lost["statsd"].sites_killed == 0
    assert lost["statsd"].server_killed == counted - flushed
    assert 0 <= lost["countless"].sites_killed <= 2 * ALPHA * counted
    assert lost["countless"].server_killed == 0


Capture = pytest.CaptureFixture[str]


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["race", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_race_command_writes_json_and_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    trace = tmp_path / "small.csv"
    trace.write_text("t,site\n" + "".join(f"{n},{n % 2}\n" for n in range(61)), encoding="utf-8")
    numbers, chart = tmp_path / "out" / "race.json", tmp_path / "out" / "race.html"
    options = ["--trace", str(trace), "--no-kill", "--json", str(numbers), "--html", str(chart)]
    assert command(monkeypatch, *options, "--contestant", "redis-incr", "--contestant", "statsd") == 0
    assert "Redis INCR" in capsys.readouterr().out
    assert [row["messages"] for row in json.loads(numbers.read_text())["results"]] == [61, 61]
    page = chart.read_text()
    assert "Plotly" in page
    assert "<script src" not in page


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--workload", "sideways", "steady"),
        ("--contestant", "abacus", "redis-incr"),
        ("--trace", "no-such-file", "readable"),
    ],
)
def test_invalid_input_is_refused_before_the_run(
    option: str, value: str, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert command(monkeypatch, option, value) == 2
    error = capsys.readouterr().err
    assert value in error
    assert complaint in error
