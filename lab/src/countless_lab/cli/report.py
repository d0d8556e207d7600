"""`countless lab report`: one HTML file with the costs of the trackers and the results of attacks on them."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from countless.cli.options import Json
from countless_lab.arena.report_data import Config, collect
from countless_lab.cli.needs import require_packages

EXAMPLE = "Example:  countless lab report --out report --games 5"


def report(
    out: Annotated[Path, typer.Option(help="Write report.html and report.json into this folder.")] = Path(),
    games: Annotated[int, typer.Option(help="Play this many games of each pair of the tournament.", min=1)] = 2,
    sites: Annotated[int, typer.Option(help="Use this many sites in the tournament.", min=2)] = 256,
    events: Annotated[
        int, typer.Option(help="Play this many events in each game of the tournament.", min=100)
    ] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed all random numbers; the same seed repeats them.")] = 1,
    jobs: Annotated[
        int | None, typer.Option(help="Use this many processes; by default one for each core.", min=1)
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw attacks, costs, the tournament, and where each scheme is cheapest.

    The default takes a minute or two.
    """
    require_packages("joblib", "plotly", "scipy")
    config = Config(seed=seed, games=games, jobs=jobs or os.cpu_count() or 1, sites=sites, events=events)
    out.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    with console.status("playing and planning"):
        data = collect(config)
    from countless_lab.arena.page import render

    page = out / "report.html"
    page.write_text(render(data), encoding="utf-8")
    numbers = json.dumps(data.as_json(), indent=2)
    (out / "report.json").write_text(numbers + "\n", encoding="utf-8")
    print(numbers if as_json else f"Wrote {page}")
