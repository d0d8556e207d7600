"""Recorded traffic as a stream."""

import gzip
from pathlib import Path

import pytest

from countless.errors import InvalidParameter
from countless_lab.simulation.baselines import flush_messages_of_trace
from countless_lab.simulation.traces import read_trace

LINES = "t,site\n0,b\n0,a\n1,a\n1.5,b\n20,c\n"


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_trace_has_the_events_of_the_file_in_order(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(LINES.encode()) if name.endswith(".gz") else LINES.encode())
    trace = read_trace(file)
    assert trace.names == ["b", "a", "c"]
    assert list(trace.order(5)) == [0, 1, 1, 0, 2]
    assert (trace.length, trace.sites, trace.fleet) == (5, 3, 3)
    assert (trace.when(0, 2), trace.count(1, 2)) == (4, 1)


def test_timed_events_start_at_second_zero(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("t,site\n7,b\n7.5,a\n9,b\n")
    assert list(read_trace(file).timed_events(2)) == [(0, 0), (0.5, 1)]


def test_flush_messages_on_the_clock_of_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(LINES)
    trace = read_trace(file)
    assert [flush_messages_of_trace(trace, 5, seconds) for seconds in (1, 2, 15, 60)] == [5, 3, 3, 3]
    assert flush_messages_of_trace(trace, 2, 1) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "first line is: t,site"),
        ("time,place\n1,a\n", "first line is: t,site"),
        ("t,site\n", "at least one event"),
        ("t,site\n1,a\nx,b\n", "line 3"),
        ("t,site\n1,a,b\n", "line 2"),
        ("t,site\n2,a\n1,b\n", "line 3 goes back"),
    ],
)
def test_invalid_files_are_refused_with_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(InvalidParameter, match=complaint):
        read_trace(file)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="readable"):
        read_trace(tmp_path / "nowhere.csv")
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(LINES.encode())[:-10])
    with pytest.raises(InvalidParameter, match="readable"):
        read_trace(broken)
    broken.write_bytes(b"no gzip")
    with pytest.raises(InvalidParameter, match="readable"):
        read_trace(broken)
