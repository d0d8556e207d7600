"""`countless demo`: a real coordinator and real sites; the service holds, the classical tracker does not."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from countless.demo.cost_table import cost_table
from countless.demo.fleet import Fleet
from countless.demo.scenario import ordinary
from support.service import TIMEOUT_S, environment, until

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "countless.cli.main", "demo"]
SMALL = ["--sites", "4", "--processes", "2", "--events", "1000", "--keep"]


# Sizes and seeds at which the classical tracker breaks. With few sites the service is `deterministic`, so it holds with
# certainty; with 150 its guarantee allows a false alarm of delta = 5 %, and none was seen in tests.
@pytest.mark.parametrize(
    ("sites", "events", "seed"), [("70", "10000", "59"), pytest.param("150", "100000", "7", marks=pytest.mark.soak)]
)
def test_demo_in_a_pipe_prints_plain_lines_and_both_verdicts(sites: str, events: str, seed: str) -> None:
    command = [*COMMAND, "--sites", sites, "--events", events, "--seed", seed, "--processes", "2"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout
    assert "\x1b" not in output
    verdicts = r"^traffic that reacts.* 100%: countless .*, (\w+)\), classical .*, (\w+)\)$"
    assert re.findall(verdicts, output, re.MULTILINE) == [("holds", "BROKEN")]
    assert "The page: http://127.0.0.1:" in output
    assert "a flush every 15 s" in output


@contextmanager
def disposition(number: signal.Signals, handler: object) -> Iterator[None]:
    """What a child process starts with: ignored signals stay ignored in it, handled ones become the default."""
    before = signal.signal(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def running_demo() -> Iterator[tuple["subprocess.Popen[str]", list[int]]]:
    """A demo that keeps running, and the processes that it has started."""
    command = [*COMMAND, *SMALL]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.stdout is not None
    try:
        while "Still counting" not in (line := process.stdout.readline()):
            assert line
        children = [
            int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ]
        assert len(children) == 3
        yield process, children
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


def assert_ended(process: "subprocess.Popen[str]", children: list[int], code: int) -> None:
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, errors) == (code, "")
    until(lambda: not any(map(exists, children)), "the end of the demo's processes")


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.soak),
    ],
)
def test_demo_stopped_by_a_signal_leaves_no_processes(number: signal.Signals, code: int) -> None:
    with disposition(number, signal.default_int_handler), running_demo() as (process, children):
        process.send_signal(number)
        assert_ended(process, children, code)


def test_demo_in_the_background_ignores_sigint_and_stops_on_sigterm() -> None:
    """A shell starts background jobs with SIGINT ignored, so that Ctrl-C does not reach them; the demo keeps to it."""
    with disposition(signal.SIGINT, signal.SIG_IGN), running_demo() as (process, children):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert_ended(process, children, 143)


def test_demo_traffic_is_never_empty() -> None:
    """One event for a hundred sites must not be rounded away: the counter exists from its first event on."""
    fleet = Fleet(100, 1, 0.05)  # not started: it has counted nothing
    for seed in range(20):
        assert sum(n for _, n in next(ordinary(fleet, seed))) >= 1


def test_cost_table() -> None:
    rows = cost_table(sites=10, total=1000, seconds=675.0, messages=50, messages_to_double=5)
    costs = {row.name: row for row in rows}
    assert costs["a message for each event"] == ("a message for each event", 1000, 128_000)
    assert costs["a flush every 15 s"][1:] == (450, 57_600)
    assert costs["countless"][1:] == (50, 85)  # seven doublings
