"""Workloads depend on their seed only, are in time order and within their time."""

from pathlib import Path

import pytest

from countless.errors import InvalidParameter
from race.workloads import AT_ONCE, COUNTERS, ONE, WORKLOADS, Event, recorded


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload_events_are_in_order_and_at_known_sites(name: str) -> None:
    workload = WORKLOADS[name](20, 3000, 120.0, 5)
    events = list(workload)
    assert events == list(WORKLOADS[name](20, 3000, 120.0, 5))
    assert events != list(WORKLOADS[name](20, 3000, 120.0, 6))
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert len(events) == len(workload)
    assert all(0 <= event.time <= 120 and 0 <= event.site < workload.sites for event in events)


def test_counters_workload_increments_several_counters() -> None:
    workload = WORKLOADS["counters"](20, 3000, 120.0, 5)
    assert workload.counters == COUNTERS
    assert all(len(set(event.counters)) == AT_ONCE for event in workload)


def trace(folder: Path) -> Path:
    file = folder / "small.csv"
    file.write_text("t,site\n100,a\n100,b\n130,a\n160,c\n", encoding="utf-8")
    return file


def test_trace_starts_at_zero_and_can_be_sped_up(tmp_path: Path) -> None:
    workload = recorded(trace(tmp_path), faster=10.0)
    assert list(workload) == [Event(0, 0, ONE), Event(0.05, 1, ONE), Event(3, 0, ONE), Event(6, 2, ONE)]
    assert (workload.name, workload.sites, workload.seconds) == ("small", 3, 6.1)


def test_trace_with_fractions_of_seconds_keeps_its_times(tmp_path: Path) -> None:
    file = tmp_path / "fine.csv"
    file.write_text("t,site\n0.5,a\n0.5,b\n1.75,a\n", encoding="utf-8")
    assert list(recorded(file)) == [Event(0, 0, ONE), Event(0, 1, ONE), Event(1.25, 0, ONE)]


def test_first_events_of_a_trace(tmp_path: Path) -> None:
    workload = recorded(trace(tmp_path), most_events=2)
    assert (len(workload), workload.sites) == (2, 2)


@pytest.mark.parametrize("faster", [0.0, -1.0, float("inf"), float("nan")])
def test_invalid_speed_is_refused(tmp_path: Path, faster: float) -> None:
    with pytest.raises(InvalidParameter, match="faster"):
        recorded(trace(tmp_path), faster=faster)
