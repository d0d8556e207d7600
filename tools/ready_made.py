"""Writes the table of ready-made `dithered` plans: python -m tools.ready_made [PROCESSES].

It adds what the table does not have, and replaces what the check refuses. To have plans of a better planner, delete
the table first; all of it takes a quarter of an hour on two processors.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from math import ceil, floor, log10, sqrt

from countless.errors import PlanError
from countless.planning.dithered.check import with_risks
from countless.planning.dithered.planner import plan_dithered
from countless.planning.dithered.ready_made import FIRST, MIN_SITES, TABLE, Row, places, plan_of

ALPHAS = (0.01, 0.02, 0.03, 0.05, 0.1, 0.07, 0.005, 0.007, 0.014, 0.04, 0.2)
ETAS = (2.0**-8, 2.0**-12, 2.0**-16, 2.0**-24)
SITES = (64, 128, 256, 512, 1024, 2048, 4096, 16384, 131072)
MARGINS = (0.003, 0.006, 0.012, 0.025, 0.05, 0.1)  # of the slacks: what interpolation misses

Request = tuple[float, float, int]  # alpha, eta, sites


def searched(request: Request) -> Row | None:
    """None if the best plan has no dither or is short: it is quick to find."""
    alpha, eta, sites = request
    plan, unit = plan_dithered(sites, alpha, eta), sqrt(sites)
    if not plan.phases[0].dither or len(plan.phases) < FIRST + 3:
        return None
    numbers = [[p.length / unit, p.dither / unit, p.slack_early / unit, p.slack_late / unit] for p in plan.phases]
    kept = [_between(numbers, place) for place in places(len(numbers))]
    rows = (_with_margin(sites, len(numbers), kept, margin) for margin in MARGINS)
    return next(row for row in rows if passes(row, request))


def passes(row: Row, request: Request) -> bool:
    """Whether the check accepts the plan for these sites, and for the fewest that would use it."""
    alpha, eta, sites = request
    fewest = max([MIN_SITES, *(known + 1 for known in SITES if known < sites)])
    try:
        return all(with_risks(plan_of(row, each, alpha, eta)) for each in (sites, fewest))
    except PlanError:
        return False


def _between(numbers: list[list[float]], place: float) -> list[float]:
    index = min(int(place), len(numbers) - 2)
    mix = place - index
    return [(1 - mix) * a + mix * b for a, b in zip(numbers[index], numbers[index + 1], strict=True)]


def _with_margin(sites: int, phases: int, numbers: list[list[float]], margin: float) -> Row:
    factors = (1.0, 1.0, 1 + margin, 1 + margin)
    return Row(sites, phases, [[_round_up(a * b) for a, b in zip(each, factors, strict=True)] for each in numbers])


def _round_up(x: float) -> float:
    """To four digits."""
    digits = 3 - floor(log10(x))
    unit = 10.0**digits
    return round(ceil(x * unit) / unit, digits)


def known() -> dict[Request, Row]:
    lines = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else []
    return {(alpha, eta, sites): Row(sites, phases, numbers) for alpha, eta, sites, phases, numbers in lines}


def write(table: dict[Request, Row]) -> None:
    lines = (json.dumps([*request, *row[1:]], separators=(",", ":")) for request, row in sorted(table.items()))
    TABLE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def main() -> None:
    table = known()
    requests = [(alpha, eta, sites) for alpha in ALPHAS for eta in ETAS for sites in SITES]
    with ProcessPoolExecutor(int(sys.argv[1]) if len(sys.argv) > 1 else None) as pool:
        present = [request for request in requests if request in table]
        accepted = pool.map(passes, [table[request] for request in present], present)
        table = {request: table[request] for request, ok in zip(present, accepted, strict=True) if ok}
        missing = [request for request in requests if request not in table]
        for request, row in zip(missing, pool.map(searched, missing), strict=True):
            if row is not None:
                table[request] = row
                write(table)
    print(f"{len(table)} plans, {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
