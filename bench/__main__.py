"""`make bench`: the numbers that the docs quote, measured in one run. Compare ratios, not seconds.

python -m bench                    the sections below that take a minute or two each
python -m bench plans scaling      these sections
python -m bench plans --write      and write their tables into the docs
"""

import sys
from importlib import import_module
from typing import NamedTuple

from tools.tables import publish


class Section(NamedTuple):
    """A function `bench.MODULE:FUNCTION` that prints, or yields tables, and the names of these tables."""

    module: str
    function: str = "main"
    tables: tuple[str, ...] = ()


SECTIONS = {
    "hot-path": Section("hot_path"),
    "demo": Section("demo", tables=("demo-reacting", "demo-day")),
    "plans": Section("plans", tables=("plans", "plans-limits", "plans-oblivious", "plans-sampled", "scale-plans")),
    "break-even": Section("break_even", tables=("race-formulas", "race-break-even")),
    "simulate": Section("simulate", tables=("simulation",)),
    "auto": Section("auto", tables=("auto-streams", "auto-traces")),
    "auto-churn": Section("auto", "churn", ("auto-churn",)),
    "planning": Section("planning", tables=("planning", "planning-even", "planning-first")),
    "skew": Section("skew", tables=("skew", "skew-steps")),
    "windows": Section("windows", tables=("windows-costs", "windows-edges")),
    "windows-default": Section("windows", "by_default", ("windows-default",)),
    "budgets": Section("budgets", tables=("budgets",)),
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
    "auto-limits": Section("auto", "limits", ("auto-limits",)),
    "kept-windows": Section("kept_windows", tables=("windows-kept",)),
    "load-rounds": Section("load", "rounds", ("load-rounds",)),
    "scaling": Section("scaling", tables=("arena-sites", "arena-above", "arena-alpha", "arena-total")),
    "tournament": Section("tournament", tables=("arena-tournament", "tournament-short")),
    "oblivious": Section("tournament", "oblivious", ("arena-oblivious",)),
    "scale-simulation": Section("simulate", "large", ("scale-simulation",)),
}


def main(arguments: list[str]) -> None:
    known = SECTIONS | LONG
    names = [argument for argument in arguments if argument != "--write"]
    for name in names:
        if name not in known:
            sys.exit(f"bench: no section {name!r}; there are: {', '.join(known)}")
    for name in names or SECTIONS:
        print(f"\n== {name}", flush=True)
        module, function, _ = known[name]
        publish(getattr(import_module(f"bench.{module}"), function)() or (), "--write" in arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
