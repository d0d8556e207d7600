"""`countless demo`: a limit and a kill, the classical tracker and ours; with `--keep` a real coordinator is killed."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from countless_lab.demo.acts import Band
from countless_lab.demo.display import Display
from countless_lab.demo.fleet import Fleet
from countless_lab.demo.keep import ordinary
from countless_lab.demo.limit import GATEWAYS, KILLED, LIMIT, Shared, share_a_limit
from countless_lab.demo.processes import DemoFailed, Processes
from support.commands import run_command
from support.service import TIMEOUT_S, environment, until

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "countless.cli.main", "demo"]
SMALL = ["--sites", "4", "--processes", "2", "--alpha", "0.05", "--keep", "--pause", "0"]


# The seeds are fixed, so this cannot fail by chance. At every seed that was tried the verdicts were the same.
@pytest.mark.parametrize(
    ("seed", "events"), [(1, 50_000), *(pytest.param(seed, 1_000_000, marks=pytest.mark.soak) for seed in range(10))]
)
def test_demo_tells_the_same_story_from_every_seed(seed: int, events: int) -> None:
    output = run_command("demo", "--seed", str(seed), "--events", str(events), COLUMNS="80").stdout
    assert "\x1b" not in output
    assert len([line for line in output.splitlines() if line]) <= 24
    titles = re.findall(r"^\d\. (\w+ \w+)", output, re.MULTILINE)
    assert titles == ["3 gateways", "A rate", "A day"]
    limits = dict(re.findall(r"^   (.+?) +([\d,]+ admitted, .*)$", output, re.MULTILINE))
    assert limits == {
        "sync every 100 ms": "10,300 admitted, 300 TOO MANY",
        "countless": "10,000 admitted, exactly the limit",
    }
    verdicts = re.findall(r"^   (classical|countless) .* worst error (\S+) x alpha: (\w+);", output, re.MULTILINE)
    assert [(name, verdict) for name, _, verdict in verdicts] == [
        ("classical", "OUTSIDE"),
        ("countless", "inside"),
    ]
    assert float(verdicts[0][1]) > 2
    bill = {name: counts for name, *counts in re.findall(r"^   (.*?)  +([\d,]+)  +([\d,]+)$", output, re.MULTILINE)}
    assert bill["a message for each event, as INCR"] == ["864,000,000", "1,000,000,000"]
    assert bill["a flush every 60 s"] == ["1,440,000", "1,666,667"]
    assert int(bill["countless"][1].replace(",", "")) < 250_000
    next_line = r"^Next: (countless demo |make demo ARGS=')--keep --port (\d+).*http://127.0.0.1:\2/\)$"
    assert re.search(next_line, output, re.MULTILINE)


@pytest.mark.parametrize("columns", [80, 120])
def test_demo_on_a_terminal_shows_both_trackers_side_by_side(columns: int) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=columns)
    display = Display(console, 0.01, frame_s=0)
    inside = Band("classical", 1_002_000, 1_000_000, 5000, 0.5, 0.9, broken=False)
    outside = Band("countless", 970_000, 1_000_000, 5000, 0.0, 3.5, broken=True)
    with display.act():
        display.bands([inside, outside])
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()).splitlines()  # type: ignore[attr-defined]
    assert any("classical" in line and "countless" in line for line in lines)
    assert max(map(len, lines)) <= columns
    pictures = next(re.findall(r"│ (\S+) │", line) for line in lines if "█" in line)
    assert re.fullmatch(r"·+\[━+\|█━+·+\]·+", pictures[0])
    assert re.fullmatch(r"·+━+█━+\[━+\|·+\]·+", pictures[1])


def test_limit_is_met_exactly_although_a_gateway_is_killed() -> None:
    """Three processes each; the killed one has admitted requests since, so it was started again."""
    with Processes() as processes:
        frames = list(share_a_limit(processes))
    (killed, before), *_ = [(now[1], then[1]) for then, now in pairwise(frames) if now[1].killed and not then[1].killed]
    assert 2 * sum(killed.admitted) >= LIMIT > 2 * sum(before.admitted)
    synced, ours = frames[-1]
    assert ours.admitted[KILLED] > killed.admitted[KILLED]
    assert (len(ours.admitted), ours.over) == (GATEWAYS, 0)
    assert synced.over > 0


def test_demo_says_why_its_coordinator_did_not_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(DemoFailed, match="free to listen on"):
        Processes(port=taken.getsockname()[1]).__enter__()


@pytest.mark.parametrize("columns", [80, 120])
def test_demo_on_a_terminal_shows_both_limits_side_by_side(columns: int) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=columns)
    display = Display(console, 0.01, frame_s=0)
    with display.act():
        display.limits(
            [Shared("sync", (4000, 3300, 3000), killed=True), Shared("countless", (4000, 3300, 2700), True)], True
        )
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()).splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= columns
    assert any("300 TOO MANY" in line and "exactly the limit" in line for line in lines)
    assert any(line.count("kill -9") == 2 for line in lines)


def test_demo_stopped_by_a_signal_shows_the_cursor_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> Iterator[list[Band]]:
        yield [Band("classical", 10, 10, 5, 0.5, 0.9, broken=False)] * 2
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("countless_lab.demo.acts.track", stopped)
    shared = [Shared(name, (5, 5, 5), killed=False) for name in ("sync", "countless")]
    monkeypatch.setattr("countless_lab.demo.limit.share_a_limit", lambda _: iter([shared]))
    monkeypatch.setattr("countless_lab.demo.processes.Processes", nullcontext)
    handler = signal.getsignal(signal.SIGTERM)
    demo = run_command("demo", FORCE_COLOR="1")
    assert demo.returncode == 143
    assert 0 < demo.stdout.rfind("\x1b[?25l") < demo.stdout.rfind("\x1b[?25h")
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.soak
def test_kept_demo_counts_everything_although_its_coordinator_is_killed() -> None:
    with running_demo() as (_, _, output):
        told = re.findall(r"\(from ([\d,]+) to ([\d,]+)\); the true total is ([\d,]+)", output)
    assert len(told) == 2
    for lower, upper, total in [[int(each.replace(",", "")) for each in numbers] for numbers in told]:
        assert lower <= total <= upper


@contextmanager
def disposition(number: signal.Signals, handler: object) -> Iterator[None]:
    """What a child process starts with: ignored signals stay ignored in it, handled ones become the default."""
    before = signal.signal(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def running_demo() -> Iterator[tuple["subprocess.Popen[str]", list[int], str]]:
    """A demo that keeps running, the processes that it has started, and what it has printed."""
    command = [*COMMAND, *SMALL]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(COLUMNS="200")
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "Still counting" in line:
                break
        threads = Path(f"/proc/{process.pid}/task").glob("*/children")
        children = [int(child) for thread in threads for child in thread.read_text().split()]
        assert len(children) == 3
        yield process, children, "".join(lines)
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
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak),  # so does the next test
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.soak),
    ],
)
def test_demo_stopped_by_a_signal_leaves_no_processes(number: signal.Signals, code: int) -> None:
    with disposition(number, signal.default_int_handler), running_demo() as (process, children, _):
        process.send_signal(number)
        assert_ended(process, children, code)


def test_demo_in_the_background_ignores_sigint_and_stops_on_sigterm() -> None:
    """A shell starts background jobs with SIGINT ignored, so that Ctrl-C does not reach them; the demo keeps to it."""
    with disposition(signal.SIGINT, signal.SIG_IGN), running_demo() as (process, children, _):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert_ended(process, children, 143)


@pytest.mark.soak
def test_demo_stopped_while_it_starts_leaves_no_processes_and_no_directory(tmp_path: Path) -> None:
    """At 20 moments of the start, and by two signals: the second must not end the cleaning up."""
    for moment in range(20):
        process = subprocess.Popen([*COMMAND, *SMALL], stdout=subprocess.DEVNULL, env=environment(TMPDIR=str(tmp_path)))
        until(lambda: any(tmp_path.iterdir()), "the directory of the demo")
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment / 10)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
        process.wait(TIMEOUT_S)
        until(lambda: str(tmp_path) not in command_lines(), "the end of the demo's coordinator")
        assert not list(tmp_path.iterdir())


def command_lines() -> str:
    """Of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text())
    return "\n".join(found)


def test_demo_traffic_is_never_empty() -> None:
    """One event for a hundred sites must not be rounded away: the counter exists from its first event on."""
    fleet = Fleet(100, 1, 0.05)  # not started: it has counted nothing
    for seed in range(20):
        assert sum(n for _, n in next(ordinary(fleet, seed))) >= 1
