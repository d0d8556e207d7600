"""`countless lab scaling`: how the messages of every scheme grow with sites, 1/alpha and the total, measured."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from countless.cli.options import Json
from countless.cli.progress import progress
from countless.errors import InvalidParameter
from countless.schemes.registry import SCHEMES
from countless_lab.arena.scaling import Curve, Request, as_json, measure, rows
from countless_lab.cli.needs import require_packages
from countless_lab.simulation.world import MARK

T = TypeVar("T")
EXAMPLE = "Example:  countless lab scaling --scheme partial_dp_paper,partial_dp,deterministic --out scaling"


def scaling(
    scheme: Annotated[str, typer.Option(help="Measure this scheme, several with commas, or all.")] = "all",
    sites: Annotated[str, typer.Option(help="Measure at these numbers of sites, with --alpha.")] = "64,256,1024",
    alphas: Annotated[
        str, typer.Option(help="Measure at these relative errors, with the middle of --sites.")
    ] = "0.005,0.01,0.02",
    alpha: Annotated[float, typer.Option(help="Use this relative error where the number of sites varies.")] = 0.01,
    above: Annotated[
        str, typer.Option(help="Measure at these numbers of sites above 1/ALPHA_ABOVE^2.")
    ] = "256,1024,4096",
    alpha_above: Annotated[float, typer.Option(help="Use this relative error for --above.")] = 0.2,
    delta: Annotated[float, typer.Option(help="Accept this probability that the bound ever fails.")] = 0.05,
    efolds: Annotated[int, typer.Option(help="Let the total grow by this many factors of e, for the ln N line.")] = 6,
    seeds: Annotated[int, typer.Option(help="Run each point this many times, from seeds 1, 2, ...")] = 3,
    jobs: Annotated[int | None, typer.Option(help="Use this many processes; by default one for each core.")] = None,
    as_json_: Json = False,
    out: Annotated[Path | None, typer.Option(help="Write scaling.json, .csv and .html into this folder, too.")] = None,
) -> None:
    """Measure messages over sites, 1/alpha and the total, and fit exponents.

    The default takes some minutes.
    """
    require_packages("joblib", *(["plotly"] if out is not None else []))
    names = [name for name in SCHEMES if name != "exact"] if scheme == "all" else [n.strip() for n in scheme.split(",")]
    counts = _numbers("sites", sites, int)
    request = Request(
        sites=sorted(counts)[len(counts) // 2],
        alpha=alpha,
        delta=delta,
        by_sites=counts,
        by_alpha=_numbers("alphas", alphas, float),
        above=_numbers("above", above, int),
        alpha_above=alpha_above,
        efolds=efolds,
        seeds=seeds,
        schemes=tuple(names),
    )
    with progress("measuring") as bar:
        curves = measure(request, jobs, bar)
    result = as_json(request, curves)
    if out is not None:
        from countless_lab.arena.scaling_page import render

        out.mkdir(parents=True, exist_ok=True)
        (out / "scaling.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        with (out / "scaling.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows(curves))
        (out / "scaling.html").write_text(render(curves), encoding="utf-8")
    if as_json_:
        print(json.dumps(result, indent=2))
    else:
        _print(Console(), curves)


def _numbers(name: str, text: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter(name, text, "numbers with commas between them") from None


def _print(console: Console, curves: list[Curve]) -> None:
    for axis in dict.fromkeys(curve.axis for curve in curves):
        some = [curve for curve in curves if curve.axis == axis]
        slope = "messages per e-fold" if axis == "ln N" else "exponent"
        table = Table("scheme", *(f"{x:,g}" for x in some[0].xs), slope, "explained", title=f"messages by {axis}")
        for curve in some:
            fitted = f"{curve.slope:,.0f}" if axis == "ln N" else f"{curve.slope:.2f}"
            table.add_row(curve.scheme, *curve.cells, fitted, f"{curve.explained:.2%}")
        console.print(table)
    if any(any(curve.unrandomised) for curve in curves):
        console.print(MARK, highlight=False)
    console.print("Messages per e-fold of the total; along ln N in all. The paper: 1/2 in sites, 1 in 1/alpha.")
