"""`countless demo`: ours holds, and the classical tracker does not."""

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_demo_shows_what_it_says() -> None:
    command = [sys.executable, "-m", "countless.cli.main", "demo", "--events", "100000"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    verdicts = re.findall(r"^ (\w+) +(ordinary|reacting) .* (holds|broken) *$", output, re.MULTILINE)
    assert {(tracker, traffic): verdict for tracker, traffic, verdict in verdicts} == {
        ("classical", "ordinary"): "holds",
        ("classical", "reacting"): "broken",
        ("deterministic", "ordinary"): "holds",
        ("deterministic", "reacting"): "holds",
        ("countless", "ordinary"): "holds",
        ("countless", "reacting"): "holds",
    }
