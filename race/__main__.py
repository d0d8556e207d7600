"""`make race`: Countless and the usual ways to count, side by side, each with its real component, in virtual time.

python -m race                                     all workloads, the losses when a process is killed, and the limits
python -m race limits                              ways to enforce one limit at many sites, alone
python -m race scarce                              50 requests at once for units that another replica holds
python -m race kills                               a limit of a web application while things are killed: 6 minutes
python -m race llm                                 tokens of a key over three proxies of LiteLLM: 6 minutes
python -m race --write                             and write the tables into the docs and README.md
python -m race --workload steady --sites 400       one of them, larger
python -m race --trace FILE --faster 60            recorded traffic (CSV with t,site) instead
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from countless.errors import CountlessError
from race.contestants.base import Case
from race.contestants.registry import CONTESTANTS, KILLED
from race.killed import losses
from race.kills.command import kills
from race.limits import table as limits_table
from race.limits.command import LIMIT, SITES, limits, race_limits
from race.limits.contestants.registry import CONTESTANTS as LIMIT_CONTESTANTS
from race.limits.play import Result as LimitResult
from race.limits.workloads import WORKLOADS as LIMIT_WORKLOADS
from race.llm.command import llm
from race.options import create, known, terminal
from race.page import render
from race.play import Result, run
from race.scarce import scarce
from race.table import losses_table, measured, results_table
from race.workloads import WORKLOADS, Workload, recorded
from tools.tables import publish

NOTE = (
    "The best of each column is green. A message carries the counts of all counters of a site that are due; replies "
    "are part of the bytes, which are the payload as the kernel counts it. Oldest answer: the largest time since the "
    "total was what the answer says. Virtual time, real components and sockets. Details: design/measurements/race.md."
)


def race(
    context: typer.Context,
    workload: Annotated[
        list[str] | None, typer.Option(help="One of: " + ", ".join(WORKLOADS) + ". Repeatable.")
    ] = None,
    contestant: Annotated[list[str] | None, typer.Option(help="One of: " + ", ".join(CONTESTANTS) + ".")] = None,
    sites: Annotated[int, typer.Option(min=1, help="How many sites count.")] = 100,
    events: Annotated[int | None, typer.Option(min=1, help="How many events (20,000; a trace: all of it).")] = None,
    seconds: Annotated[float, typer.Option(min=60, help="Virtual seconds of a workload.")] = 600.0,
    trace: Annotated[list[Path] | None, typer.Option(help="Recorded traffic: CSV or CSV.gz with t,site.")] = None,
    faster: Annotated[float, typer.Option(help="Factor by which the clock of a trace is sped up.")] = 1.0,
    alpha: Annotated[float, typer.Option(help="Relative error allowed to Countless.")] = 0.05,
    silent_after: Annotated[float, typer.Option(help="The setting silent_after, in seconds.")] = 10.0,
    kill: Annotated[bool, typer.Option(help="Also kill processes, in the first workload.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the workloads.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers into this file.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a chart into this file.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the tables into design/measurements/race.md and README.md.")
    ] = False,
) -> None:
    """Count the same events with every contestant.

    Unless workloads, contestants or traces are chosen, the race for limits follows.
    """
    if context.invoked_subcommand is not None:
        return
    keys = known("contestant", contestant, CONTESTANTS)
    if trace:
        loads = [recorded(path, events, faster) for path in trace]
    else:
        names = known("workload", workload, WORKLOADS)
        loads = [WORKLOADS[name](sites, events or 20_000, seconds, seed) for name in names]
    for file in filter(None, (json_file, html_file)):  # before the long run
        create(file)
    console, begin = terminal(), time.monotonic()
    results: list[Result] = []
    for load in loads:
        rows = [run(CONTESTANTS[key], load, _case(load, alpha, silent_after)) for key in keys]
        console.print(results_table(load, rows, alpha))
        results += rows
    killed = (contestant or KILLED) if kill else ()
    lost = [losses(key, loads[0], _case(loads[0], alpha, silent_after)) for key in killed]
    if lost:
        console.print(losses_table(lost))
    console.print(NOTE)
    console.print(f"[{time.monotonic() - begin:.0f} s]", highlight=False, markup=False)
    limited: list[LimitResult] = []
    if not (workload or contestant or trace):
        limited = race_limits(console, list(LIMIT_CONTESTANTS), list(LIMIT_WORKLOADS), SITES, LIMIT, seed)
    if json_file is not None:
        numbers = {"results": results, "losses": lost, "limits": limited}
        json_file.write_text(json.dumps(numbers, indent=2, default=asdict) + "\n", encoding="utf-8")
    if html_file is not None:
        html_file.write_text(render(results, lost, alpha), encoding="utf-8")
    if write:
        publish([*measured(results, lost), *limits_table.measured(limited)], save=True)


def _case(workload: Workload, alpha: float, silent_after: float) -> Case:
    return Case(workload.sites, workload.counters, alpha, silent_after=silent_after)


def main() -> None:
    """Errors that the user can fix are one line and exit code 2."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.callback(invoke_without_command=True)(race)
    app.command()(limits)
    app.command()(kills)
    app.command()(llm)
    app.command()(scarce)
    try:
        app()
    except CountlessError as error:
        print(f"race: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
