"""`python -m race limits`: ways to enforce one limit at many sites, side by side."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from countless.errors import InvalidParameter
from race.limits.contestants.registry import CONTESTANTS
from race.limits.play import Result, run
from race.limits.table import measured, results_table
from race.limits.workloads import WORKLOADS
from race.options import create, known, terminal
from tools.tables import publish

SITES = (3, 10, 100)
LIMIT = 5000
NOTE = (
    "The best of each column is green. Over L: units spent beyond the limit. First refusal at: units spent and held "
    "then. A refusal is wrong if the request would have fitted. Messages: packets with data, in both directions. "
    "design/measurements/race.md has the details."
)


def limits(
    workload: Annotated[
        list[str] | None, typer.Option(help="One of: " + ", ".join(WORKLOADS) + ". Repeatable.")
    ] = None,
    contestant: Annotated[list[str] | None, typer.Option(help="One of: " + ", ".join(CONTESTANTS) + ".")] = None,
    sites: Annotated[list[int] | None, typer.Option(min=1, help="How many sites: 3, 10 and 100. Repeatable.")] = None,
    limit: Annotated[int, typer.Option(min=100, help="L, the units that may be spent.")] = LIMIT,
    seed: Annotated[int, typer.Option(help="Seed of the workloads.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers into this file.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the tables into the docs; runs everything.")] = False,
) -> None:
    """Decide about the same requests with every contestant."""
    keys, names = known("contestant", contestant, CONTESTANTS), known("workload", workload, WORKLOADS)
    if write and (workload or contestant or sites):
        raise InvalidParameter("write", True, "without --workload, --contestant and --sites: tables are written whole")
    if json_file is not None:
        create(json_file)
    results = race_limits(terminal(), keys, names, sites or SITES, limit, seed)
    if json_file is not None:
        numbers = {"limits": [asdict(row) for row in results]}
        json_file.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    if write:
        publish(measured(results), save=True)


def race_limits(
    console: Console, keys: Sequence[str], names: Sequence[str], sites: Sequence[int], limit: int, seed: int
) -> list[Result]:
    """Print a table for each workload and number of sites."""
    begin, results = time.monotonic(), []
    for rows in _rows(keys, names, sites, limit, seed):
        console.print(results_table(rows))
        results += rows
    console.print(NOTE)
    console.print(f"[{time.monotonic() - begin:.0f} s]", highlight=False, markup=False)
    return results


def _rows(
    keys: Sequence[str], names: Sequence[str], sites: Sequence[int], limit: int, seed: int
) -> Iterator[list[Result]]:
    contestants = {key: CONTESTANTS[key] for key in keys}
    with ExitStack() as stack:
        servers = {key: stack.enter_context(closing(each.server())) for key, each in contestants.items()}
        for number in sites:
            for name in names:
                workload = WORKLOADS[name](number, limit, seed)
                yield [run(each, servers[key], workload, f"{name}-{number}") for key, each in contestants.items()]
