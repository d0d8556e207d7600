"""Writes the table of ready-made `dithered` plans: python -m tools.ready_made [PROCESSES]. It takes some minutes.

Needed when the planner finds better plans, or when the check refuses some of the table: a test says so.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from math import sqrt

from countless.planning.dithered import plan_dithered
from countless.planning.ready_made import FIRST, TABLE, places

ALPHAS = (0.01, 0.02, 0.03, 0.05, 0.1)
ETAS = (2.0**-8, 2.0**-12, 2.0**-16)
SITES = tuple(2**power for power in range(6, 18))


def row(request: tuple[int, float, float]) -> str | None:
    """None if the best plan has no dither or is short: it is quick to find."""
    sites, alpha, eta = request
    plan, unit = plan_dithered(sites, alpha, eta), sqrt(sites)
    if not plan.phases[0].dither or len(plan.phases) < FIRST + 3:
        return None
    numbers = [[p.length / unit, p.dither / unit, p.slack_early / unit, p.slack_late / unit] for p in plan.phases]
    kept = [_between(numbers, place) for place in places(len(numbers))]
    return json.dumps([alpha, eta, sites, len(numbers), kept], separators=(",", ":"))


def _between(numbers: list[list[float]], place: float) -> list[float]:
    index = min(int(place), len(numbers) - 2)
    mix = place - index
    exact = ((1 - mix) * a + mix * b for a, b in zip(numbers[index], numbers[index + 1], strict=True))
    return [float(f"{x:.4g}") for x in exact]


def main() -> None:
    requests = [(sites, alpha, eta) for alpha in ALPHAS for eta in ETAS for sites in SITES]
    with ProcessPoolExecutor(int(sys.argv[1]) if len(sys.argv) > 1 else None) as pool:
        rows = [found for found in pool.map(row, requests) if found is not None]
    TABLE.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
    print(f"{len(rows)} plans, {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
