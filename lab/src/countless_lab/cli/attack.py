"""`countless lab attack`: play adversaries against trackers, and count the broken bounds."""

import csv
import json
import sys
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from countless.cli.numbers import number_of_events
from countless.cli.options import Json, refuse_unused
from countless.cli.progress import progress
from countless_lab.arena.match import Match, Setting, run
from countless_lab.arena.registry import SEARCH
from countless_lab.arena.tournament import (
    ADVERSARY_NAMES,
    as_json,
    claimed,
    guarantee_violated,
    names,
    settings,
    unrandomised,
)
from countless_lab.cli.needs import require_packages
from countless_lab.simulation.traces import read_trace
from countless_lab.simulation.world import MARK

EXAMPLE = "Example:  countless lab attack --scheme hyz --adversary stop-after-jump --sites 1024 --trials 50"

PIPE_COLUMNS = 150  # width of the output in a pipe: enough for the tournament


def attack(
    scheme: Annotated[
        str,
        typer.Option(help="Attack this scheme or framework, several with commas, or all."),
    ] = "hyz",
    adversary: Annotated[
        str, typer.Option(help="Play this adversary, several with commas, all, or search.")
    ] = "stop-after-jump",
    sites: Annotated[int, typer.Option(help="Use this many sites.")] = 1024,
    alpha: Annotated[float, typer.Option(help="Allow this relative error, between 0 and 1/2.")] = 0.01,
    delta: Annotated[float, typer.Option(help="Accept this probability that the bound ever fails.")] = 0.05,
    events: Annotated[str, typer.Option(help="Play this many events in each game, such as 1e6.")] = "1e6",
    trials: Annotated[int, typer.Option(help="Play this many games of each pair, from seeds SEED, SEED + 1, ...")] = 20,
    against: Annotated[
        str, typer.Option(help="With auto: assume oblivious, adaptive or sees-everything traffic.")
    ] = "adaptive",
    tries: Annotated[int, typer.Option(help="With search: try this many variants.", min=1)] = 40,
    seconds: Annotated[float | None, typer.Option(help="With search: try for this many seconds instead.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Let feedback follow this traffic, a CSV or CSV.gz with t,site.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed all random numbers; the same seed repeats them.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Use this many processes; by default one for each core.")] = None,
    as_json_: Json = False,
    out: Annotated[Path | None, typer.Option(help="Write attack.json and games.csv into this folder, too.")] = None,
    *,
    context: typer.Context,
) -> None:
    """Play adversaries against trackers, and count the broken bounds.

    A scheme may be a negative control or a robust-streaming framework, too.
    Exits with 1 if a guarantee that covers the adversary doesn't hold.
    """
    require_packages("joblib", "scipy")
    if SEARCH not in names(adversary, ADVERSARY_NAMES):
        refuse_unused(context, f"only with --adversary {SEARCH}", "tries", "seconds")
    base = {"sites": sites, "alpha": alpha, "delta": delta, "events": number_of_events(events), "against": against}
    stream = None if trace is None else read_trace(trace)
    limits = {"tries": float(tries)} if seconds is None else {"tries": inf, "seconds": seconds}
    pairs = settings(scheme, adversary, base, seed=seed, trace=stream, **limits)
    with progress("playing") as bar:
        matches = run(pairs, trials, seed, jobs=jobs, progress=bar)
    found = [as_json(match, seed) for match in matches]
    if out is not None:
        _write(out, found, matches)
    if as_json_:
        print(json.dumps(found[0] if len(found) == 1 else {"matches": found}, indent=2))
    else:
        _print(Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS), matches)
    if any(guarantee_violated(match) for match in matches):
        raise typer.Exit(1)


def _write(out: Path, found: list[dict[str, Any]], matches: list[Match]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "attack.json").write_text(json.dumps({"matches": found}, indent=2) + "\n")
    with (out / "games.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        for match in matches:
            for score in match.scores:
                game = asdict(score)
                if file.tell() == 0:
                    rows.writerow(["scheme", "adversary", *game])
                rows.writerow([match.setting.scheme, match.setting.adversary.name, *game.values()])


def _print(console: Console, matches: list[Match]) -> None:
    schemes = list(dict.fromkeys(match.setting.scheme for match in matches))
    if len(schemes) > 1 and len(matches) > len(schemes):
        console.print(_tournament(matches, schemes))
        console.print(
            "Worst error / alpha, and the number of games broken. ! marks a violated guarantee.", highlight=False
        )
    else:
        console.print(_list(matches))
    if any(map(unrandomised, matches)):
        console.print(f"{MARK} Take more events or sites.", highlight=False)
    console.print("Games without a failure are not a proof. The proofs are in design/proofs.", highlight=False)


def _style(match: Match) -> str:
    return "bold red" if guarantee_violated(match) else "yellow" if match.failures else "green"


def _list(matches: list[Match]) -> Table:
    table = Table(title=_title(matches[0].setting), caption="worst: error / alpha; failure rate: 95 % sure")
    for column in ("scheme", "adversary"):
        table.add_column(column, no_wrap=True)
    for column in ("broken", "failure rate", "worst", "messages"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("claim", no_wrap=True)
    for match in matches:
        rate = f"< {match.failure_rate[1]:.3f}"
        name = match.setting.scheme + "*" * unrandomised(match)
        cells = [name, match.setting.adversary.name, f"{match.failures}/{match.trials}"]
        cells += [rate, f"{match.worst:.2f}", f"{match.messages:,.0f}"]
        table.add_row(*cells, "yes" if claimed(match.setting) else "no", style=_style(match))
    return table


def _tournament(matches: list[Match], schemes: list[str]) -> Table:
    table = Table(title=_title(matches[0].setting), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("adversary", no_wrap=True)
    for scheme in schemes:
        table.add_column(scheme, justify="right", overflow="fold")
    rows: dict[str, list[str]] = {}
    for match in matches:
        broken = f" ({match.failures})" if match.failures else ""
        mark = "!" if guarantee_violated(match) else ""
        cell = f"[{_style(match)}]{match.worst:.2f}{broken}{mark}{'*' * unrandomised(match)}[/]"
        rows.setdefault(match.setting.adversary.name, []).append(cell)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _title(setting: Setting) -> str:
    return f"{setting.sites:,} sites, alpha = {setting.alpha:g}, delta = {setting.delta:g}, {setting.events:,} events"
