"""`make bench`: the numbers that the docs quote, measured in one run. Compare ratios, not seconds.

python -m bench                    the sections below that take a minute or two each
python -m bench plans scaling      these sections
python -m bench plans --write      and write their tables into the docs
python -m bench load --against v1  five runs each of this section here and in the tree of v1, by turns
"""

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from bench import against, figures
from tools.tables import publish


class Section(NamedTuple):
    """A function `bench.MODULE:FUNCTION` that prints, or yields tables, and the names of these tables."""

    module: str
    function: str = "main"
    tables: tuple[str, ...] = ()


SECTIONS = {
    "import": Section("imports", tables=("import",)),
    "hot-path": Section("hot_path"),
    "calls": Section("calls"),
    "house": Section("house"),
    "demo": Section("demo", tables=("demo-reacting", "demo-day")),
    "plans": Section("plans", tables=("plans", "plans-limits", "plans-oblivious", "plans-sampled", "scale-plans")),
    "break-even": Section("break_even", tables=("race-formulas", "race-break-even")),
    "simulate": Section("simulate", tables=("simulation",)),
    "auto": Section("auto", tables=("auto-streams", "auto-traces")),
    "auto-churn": Section("auto", "churn", ("auto-churn",)),
    "auto-growing": Section("auto", "growing", ("auto-growing",)),
    "planning": Section("planning", tables=("planning", "planning-even", "planning-first")),
    "skew": Section("skew", tables=("skew", "skew-steps")),
    "windows": Section("windows", tables=("windows-costs", "windows-edges")),
    "windows-default": Section("windows", "by_default", ("windows-default",)),
    "budgets": Section(
        "budgets", tables=("budgets", "budgets-games", "budgets-server", "budgets-overload", "budgets-waits")
    ),
    "families": Section(
        "families",
        tables=(
            "families-messages",
            "families-adversaries",
            "families-memory",
            "families-quantiles",
            "families-traces",
        ),
    ),
    "agent": Section("agent", tables=("agent",)),
    "page": Section("page", tables=("page-first-paint",)),
    "load": Section("load", tables=("load", "load-return")),
    "scale": Section("scale", tables=("scale-memory",)),
    "frames": Section("scale", "frames", ("scale-bytes",)),
    "frameworks": Section("scaling", "frameworks", ("arena-frameworks",)),
}
LONG = {
    "envoy": Section("envoy", tables=("envoy",)),  # `make bench-envoy`
    "tightness": Section("tightness", tables=("tightness",)),
    "audit": Section("audit", tables=("audit-power",)),
    "auto-limits": Section("auto", "limits", ("auto-limits",)),
    "auto-growing-ends": Section("auto", "ends", ("auto-growing-ends",)),
    "windows-quiet": Section("windows", "quiet", ("windows-quiet",)),
    "kept-windows": Section("kept_windows", tables=("windows-kept",)),
    "load-rounds": Section("load", "rounds", ("load-rounds",)),
    "scaling": Section("scaling", tables=("arena-sites", "arena-above", "arena-alpha", "arena-total")),
    "tournament": Section("tournament", tables=("arena-tournament", "tournament-short")),
    "oblivious": Section("tournament", "oblivious", ("arena-oblivious",)),
    "memoryless": Section("tournament", "memoryless", ("arena-memoryless",)),
    "scale-calls": Section("scale", "calls", ("scale-calls",)),
    "scale-simulation": Section("simulate", "large", ("scale-simulation",)),
}
COMPARED = ("import", "hot-path", "load", "kept-windows")  # their figures are processor time and memory


def main(arguments: list[str]) -> None:
    known = SECTIONS | LONG
    parser = argparse.ArgumentParser("python -m bench", description="The numbers that the docs quote.")
    parser.add_argument("sections", nargs="*", help="default: those that take a minute or two")
    parser.add_argument("--write", action="store_true", help="write the tables into the docs")
    parser.add_argument(
        "--against", metavar="REV", help="compare with this commit, whose tree runs by turns with this one"
    )
    parser.add_argument("--turns", type=int, default=5, help="of a comparison; their median is printed (default: 5)")
    parser.add_argument("--figures", type=Path, metavar="FILE", help="write what a comparison needs, as JSON")
    options = parser.parse_args(arguments)
    for name in options.sections:
        if name not in known:
            sys.exit(f"bench: no section {name!r}; there are: {', '.join(known)}")
    if options.against:
        return against.compare(options.sections or [*COMPARED], options.against, options.turns)
    for name in options.sections or SECTIONS:
        print(f"\n== {name}", flush=True)
        module, function, _ = known[name]
        publish(getattr(import_module(f"bench.{module}"), function)() or (), options.write)
    if options.figures is not None:
        options.figures.write_text(json.dumps(figures.measured))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
