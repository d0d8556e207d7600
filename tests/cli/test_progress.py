"""Long runs show a progress bar on a terminal (a pseudo-terminal here) and lines in a pipe."""

import os
import pty
import subprocess
import sys

import pytest

from countless.cli.progress import progress

SIMULATE = ["lab", "simulate", "--sites", "20", "--alpha", "0.1", "--events", "1e5"]
ATTACK = ["lab", "attack", "--scheme", "lattice", "--sites", "16", "--alpha", "0.2", "--events", "500", "--jobs", "1"]
AUDIT = ["lab", "audit", "--events", "2", "--tapes", "1", "--transcripts", "1", "--plays", "100"]


def command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "countless.cli.main", *arguments]


def on_a_terminal(arguments: list[str]) -> str:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command(arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = bytearray()
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:  # on Linux: the other end of the terminal is closed
            pass
        finally:
            os.close(ours)
    assert process.returncode == 0, seen
    return seen.decode()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("arguments", "word", "result"),
    [
        (SIMULATE, "simulating", "messages"),
        (ATTACK, "playing", "worst"),
        (AUDIT, "auditing", "claim"),
    ],
)
def test_progress_bar_on_a_terminal_and_at_most_lines_in_a_pipe(arguments: list[str], word: str, result: str) -> None:
    seen = on_a_terminal(arguments)
    assert word in seen
    assert "━" in seen
    assert "100 %" in seen
    assert result in seen.rpartition(word)[2]  # the bar is removed before the result is printed
    piped = subprocess.run(command(arguments), capture_output=True, text=True, check=True)
    assert result in piped.stdout
    assert word not in piped.stdout
    assert all(line.startswith(word) for line in piped.stderr.splitlines())  # one every ten seconds


def test_long_run_in_a_pipe_shows_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([100.0, 109.0, 110.0, 119.0, 125.0])
    with progress("simulating", clock=lambda: next(seconds)) as show:
        for part in (0.1, 0.2, 0.3, 0.41):
            show(part)
    assert capsys.readouterr() == ("", "simulating: 20% after 10 s\nsimulating: 41% after 25 s\n")
