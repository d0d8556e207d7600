"""The table of plans (SPEC 3.4) beside ours, and what a plan takes to work out."""

from collections.abc import Callable
from functools import partial
from time import perf_counter

from countless.planning.deterministic import plan_deterministic
from countless.planning.dithered import plan_dithered
from countless.planning.lattice import plan_lattice
from countless.planning.partial_dp import plan_partial_dp
from countless.planning.sampled import plan_sampled

ETA = 1e-4
# (sites, alpha): ratio to deterministic of partial_dp paper, partial_dp proven, sampled, dithered, lattice
TARGETS = {
    (64, 0.01): (22.8, 5.2, 2.82, 1.28, 0.65),
    (256, 0.01): (14.1, 3.9, 1.39, 0.725, 0.37),
    (1_000, 0.01): (8.6, 2.5, 0.688, 0.418, 0.22),
    (4_000, 0.01): (5.2, 1.4, 0.324, 0.245, 0.14),
    (10_000, 0.01): (3.7, 0.99, 0.190, 0.176, 0.10),
    (100_000, 0.01): (1.74, 0.41, 0.0494, 0.083, 0.055),
    (1_000, 0.001): (8.3, 2.4, 0.721, 0.427, 0.15),
    (10_000, 0.001): (3.4, 0.87, 0.226, 0.177, 0.057),
    (1_000, 0.05): (9.8, 3.0, 0.538, 0.489, 0.38),
}
NAMES = ("partial_dp paper", "partial_dp proven", "sampled", "dithered", "lattice")


def ratios(sites: int, alpha: float) -> tuple[float, ...]:
    """Ours, with the paper's 3k per synchronisation for the two calibrations of partial_dp, as in the table."""
    yardstick = plan_deterministic(sites, alpha).messages_per_efold
    costs = (
        plan_partial_dp(sites, alpha, ETA, "paper").paper_messages_per_efold,
        plan_partial_dp(sites, alpha, ETA, "proven").paper_messages_per_efold,
        plan_sampled(sites, alpha, ETA).messages_per_efold,
        plan_dithered(sites, alpha, ETA).messages_per_efold,
        plan_lattice(sites, alpha, ETA).messages_per_efold,
    )
    return tuple(cost / yardstick for cost in costs)


def table() -> None:
    print(f"messages per e-fold / deterministic, eta = {ETA:g}: ours (target, +/- %)")
    print(f"{'sites':>8} {'alpha':>6}  " + "  ".join(f"{name:>24}" for name in NAMES))
    for (sites, alpha), targets in TARGETS.items():
        cells = []
        for ours, target in zip(ratios(sites, alpha), targets, strict=True):
            cells.append(f"{ours:9.4g} ({target:6.4g}, {100 * (ours / target - 1):+5.1f})")
        print(f"{sites:>8} {alpha:>6}  " + "  ".join(f"{cell:>24}" for cell in cells))


def times() -> None:
    print("\nseconds for a cold plan (bar 2)")
    calibrations: dict[str, Callable[[int, float, float], object]] = {
        "dithered": plan_dithered,
        "sampled": partial(plan_sampled, least_step=512),
        "partial_dp": plan_partial_dp,
        "lattice": plan_lattice,
    }
    for sites in (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000):
        cells = []
        for name, calibrate in calibrations.items():
            start = perf_counter()
            calibrate(sites, 0.01, 2.0**-13)
            cells.append(f"{name} {perf_counter() - start:.3f}")
        print(f"{sites:>9,} sites: " + ", ".join(cells))


def main() -> None:
    table()
    times()
