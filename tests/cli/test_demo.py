"""`countless demo`: a real coordinator and real sites; ours holds, and the classical tracker does not."""

import os
import re
import signal
import subprocess
import sys

import pytest

from countless.demo.cost_table import cost_table
from support.service import PATIENCE, environment, until

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "countless.cli.main", "demo"]


def test_in_a_pipe_it_tells_the_story_in_plain_lines() -> None:
    """Ours holds: false alarm 5 % over the whole life of a counter by the promise, about never as measured."""
    small = ["--processes", "4"]
    output = subprocess.run([*COMMAND, *small], capture_output=True, text=True, check=True, env=environment()).stdout
    assert "\x1b" not in output
    acted = r"^traffic that reacts.* 100%: countless .*, (\w+)\), classical .*, (\w+)\)$"
    last = re.findall(acted, output, re.MULTILINE)
    assert last == [("holds", "BROKEN")]
    assert "The page: http://127.0.0.1:" in output
    assert "a flush every 15 s" in output


def test_ctrl_c_leaves_nothing_behind() -> None:
    process = subprocess.Popen(
        [*COMMAND, "--sites", "4", "--processes", "2", "--events", "1000", "--keep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    output = ""
    while "Still counting" not in output:
        output += (line := process.stdout.readline())
        assert line, output
    children = children_of(process.pid)
    assert len(children) == 3
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, "")
    until(lambda: not any(map(alive, children)), "the end of the demo's processes")


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as children:  # noqa: PTH123 - not a file one has a path to
        return [int(child) for child in children.read().split()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_cost_table() -> None:
    lines = {
        line.name: line for line in cost_table(sites=10, total=1000, seconds=675.0, messages=50, messages_to_double=5)
    }
    assert lines["a message for each event"] == ("a message for each event", 1000, 128_000)
    assert lines["a flush every 15 s"][1:] == (450, 57_600)
    assert lines["countless"][1:] == (50, 85)  # seven doublings
