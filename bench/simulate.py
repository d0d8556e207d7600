"""Runs of `countless lab simulate`, each in a process of its own."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from countless.schemes.compare import DAY
from tools.tables import Table

RUNS = (
    "--sites 1000 --events 1e9",
    "--sites 1000 --events 1e9 --stream joining",
    "--sites 1000 --events 1e9 --stream hot_spots",
    "--sites 1000 --events 1e9 --stream bursts",
    "--sites 10000 --events 1e9",
    "--sites 10000 --events 1e9 --stream zipf",
)
LARGE = ((100_000, "1e10"), (1_000_000, "1e11"))


def countless(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "countless.cli.main", *arguments, "--json"]
    result: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)  # noqa: S603
    return result


def simulate(arguments: str) -> tuple[dict[str, Any], float]:
    """The result, and the CPU seconds of the whole command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = countless("lab", "simulate", *arguments.split())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> Iterator[Table]:
    rows = []
    for run in RUNS:
        result, cpu = simulate(run)
        figures = (f"{result['messages']:,}", str(result["rounds"]), f"{result['worst_error_over_alpha']:.3f}")
        rows.append((f"`countless lab simulate {run}`", *figures, f"{cpu:.1f}"))
    yield Table("simulation", ("command", "messages", "rounds", "worst error / alpha", "CPU seconds"), rows)


def large() -> Iterator[Table]:
    """Some five minutes. The planned messages are those of the first day at the rate that has as many events."""
    rows = []
    for sites, events in LARGE:
        plan = countless("plan", "--sites", str(sites), "--rate", f"{float(events) / DAY}/s")
        planned = plan["candidates"][plan["choice"]]["messages_first_day"]
        result, cpu = simulate(f"--sites {sites} --events {events}")
        messages = result["messages"]
        rows.append(
            (
                f"{sites:,}",
                events,
                f"{planned:,.0f}",
                f"{messages:,} ({messages / planned - 1:+.0%})",
                f"{result['rounds']}",
                f"{result['bytes'] / 1e6:.1f} MB",
                f"{result['worst_error_over_alpha']:.2f}",
                f"{cpu:.0f}",
                # The largest child so far: fleets grow from row to row.
                f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3:,.0f} MB",
            )
        )
    columns = ("sites", "events", "messages, planned", "messages, simulated", "rounds", "bytes", "worst error / alpha")
    yield Table("scale-simulation", (*columns, "CPU s", "memory"), rows)
