"""`make race`: what people use today and Countless, side by side, each with its real component, in virtual time.

python -m race                                     all workloads, and who loses what when a process is killed
python -m race --workload steady --sites 400       one of them, larger
python -m race --trace FILE --faster 60            recorded traffic (CSV with t,site) instead
"""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from countless.errors import CountlessError, InvalidParameter
from race.contestants.base import Case
from race.contestants.registry import CONTESTANTS, VICTIMS
from race.killed import Loss, losses
from race.page import render
from race.play import Result, run
from race.table import losses_table, results_table
from race.workloads import WORKLOADS, Workload, recorded

NOTE = (
    "Best of each column in green. A message carries counts (all counters of a site that are due travel in one); "
    "replies are in the bytes, which are payload as the kernel counted it. The oldest answer: how long ago the total "
    "was what the answer says. Virtual time, real components, real sockets. When not to use Countless: docs/race.md."
)


def race(
    workload: Annotated[
        list[str] | None, typer.Option(help="One of: " + ", ".join(WORKLOADS) + ". Repeatable.")
    ] = None,
    contestant: Annotated[list[str] | None, typer.Option(help="One of: " + ", ".join(CONTESTANTS) + ".")] = None,
    sites: Annotated[int, typer.Option(min=1, help="How many sites count.")] = 100,
    events: Annotated[int | None, typer.Option(min=1, help="How many events (20,000; a trace: all of it).")] = None,
    seconds: Annotated[float, typer.Option(min=60, help="Virtual seconds of a workload.")] = 600.0,
    trace: Annotated[list[Path] | None, typer.Option(help="Recorded traffic: CSV or CSV.gz with t,site.")] = None,
    faster: Annotated[float, typer.Option(help="Play a trace's clock so many times as fast.")] = 1.0,
    alpha: Annotated[float, typer.Option(help="Relative error that Countless may make.")] = 0.05,
    silent_after: Annotated[float, typer.Option(help="Seconds after which a site counts as silent.")] = 10.0,
    kill: Annotated[bool, typer.Option(help="Also kill processes, in the first workload.")] = True,
    seed: Annotated[int, typer.Option(help="Of the workloads.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers into this file.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a chart into this file.")] = None,
) -> None:
    """Everybody counts the same events."""
    keys = _known("contestant", contestant, CONTESTANTS)
    if trace:
        loads = [recorded(path, events, faster) for path in trace]
    else:
        names = _known("workload", workload, WORKLOADS)
        loads = [WORKLOADS[name](sites, events or 20_000, seconds, seed) for name in names]
    for file in filter(None, (json_file, html_file)):  # now, not after a long run
        _make_room(file)
    console, begin = Console(width=None if sys.stdout.isatty() else 120), time.monotonic()
    results: list[Result] = []
    for load in loads:
        rows = [run(CONTESTANTS[key], load, _case(load, alpha, silent_after)) for key in keys]
        console.print(results_table(load, rows, alpha))
        results += rows
    victims = (contestant or VICTIMS) if kill else ()
    lost = [losses(key, loads[0], _case(loads[0], alpha, silent_after)) for key in victims]
    if lost:
        console.print(losses_table(lost))
    console.print(NOTE)
    console.print(f"[{time.monotonic() - begin:.0f} s]", highlight=False, markup=False)
    _write(results, lost, alpha, json_file, html_file)


def _known(parameter: str, chosen: list[str] | None, known: Iterable[str]) -> list[str]:
    for name in chosen or ():
        if name not in known:
            raise InvalidParameter(parameter, name, f"one of: {', '.join(known)}")
    return list(chosen or known)


def _make_room(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        raise InvalidParameter("file", str(file), f"one that can be written ({error})") from error


def _case(workload: Workload, alpha: float, silent_after: float) -> Case:
    return Case(workload.sites, workload.counters, alpha, silent_after=silent_after)


def _write(
    results: Sequence[Result], lost: Sequence[Loss], alpha: float, json_file: Path | None, html_file: Path | None
) -> None:
    if json_file is not None:
        numbers = {"results": [asdict(row) for row in results], "losses": [asdict(row) for row in lost]}
        json_file.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    if html_file is not None:
        html_file.write_text(render(results, lost, alpha), encoding="utf-8")


def main() -> None:
    """Errors that the user can mend are one line and exit code 2."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(race)
    try:
        app()
    except CountlessError as error:
        print(f"race: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
