"""What the plans cost relative to `deterministic`, and how long planning takes."""

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

from countless.cli.plan import TYPICAL_ROUND
from countless.planning.deterministic import plan_deterministic
from countless.planning.dithered.planner import plan_dithered
from countless.planning.failure_budget import round_eta
from countless.planning.oblivious import plan_lattice
from countless.planning.partial_dp.planner import plan_partial_dp
from countless.planning.plan import MAX_SITES
from countless.planning.sampled import plan_sampled
from countless.schemes import compare
from countless_lab.planning.blocks import plan_blocks
from countless_lab.planning.hyz import plan_hyz
from tools.tables import Table

ETA = round_eta(0.05, TYPICAL_ROUND)  # as in `countless plan`
SIZES = (
    *((sites, 0.01) for sites in (64, 256, 1_000, 4_000, 10_000, 100_000)),
    (1_000, 0.001),
    (10_000, 0.001),
    (1_000, 0.05),
)


def _deterministic(sites: int, alpha: float) -> float:
    return plan_deterministic(sites, alpha).messages_per_efold


def _paper(sites: int, alpha: float) -> float:
    return plan_partial_dp(sites, alpha, ETA, "paper").paper_messages_per_efold


def _proven(sites: int, alpha: float) -> float:
    return plan_partial_dp(sites, alpha, ETA, "proven").paper_messages_per_efold


def _sampled(sites: int, alpha: float) -> float:
    return plan_sampled(sites, alpha, ETA).messages_per_efold


def _dithered(sites: int, alpha: float) -> float:
    return plan_dithered(sites, alpha, ETA).messages_per_efold


def _lattice(sites: int, alpha: float) -> float:
    return plan_lattice(sites, alpha, ETA).messages_per_efold


Cost = Callable[[int, float], float]  # messages per e-fold for (sites, alpha)
ADAPTIVE: dict[str, Cost] = {  # `partial_dp` with the paper's 3k messages for a synchronisation
    "`partial_dp`, paper's constants": _paper,
    "`partial_dp`, proven": _proven,
    "`sampled`": _sampled,
    "`dithered`": _dithered,
}
COSTS: dict[str, Cost] = {**ADAPTIVE, "`lattice` (oblivious traffic only)": _lattice}


def ratios() -> Table:
    """Messages per e-fold over those of `deterministic`."""
    rows = []
    for sites, alpha in SIZES:
        costs = [cost(sites, alpha) / _deterministic(sites, alpha) for cost in COSTS.values()]
        rows.append((*size(sites, alpha), *(f"{ratio:#.3g}" for ratio in costs)))
    return Table("plans", ("sites", "alpha", *COSTS), rows)


def limits() -> Table:
    """From how many sites on a scheme is cheaper than `deterministic`, and `sampled` cheaper than `dithered`."""
    rows = []
    for alpha in (0.001, 0.01, 0.05):
        cells = [_limit(cost, _deterministic, alpha) for cost in ADAPTIVE.values()]
        rows.append((f"{100 * alpha:g} %", *cells, _limit(_sampled, _dithered, alpha)))
    return Table("plans-limits", ("alpha", *ADAPTIVE, "`sampled` against `dithered`"), rows)


def _limit(cost: Cost, reference: Cost, alpha: float) -> str:
    """To two digits: the costs are nearly equal there."""
    low, high = 1, 16
    while cost(high, alpha) > reference(high, alpha):
        low, high = high, 4 * high
        if high > MAX_SITES:
            return f"> {low:,}"
    while high > 1.01 * low + 1:
        middle = round((low * high) ** 0.5)
        if cost(middle, alpha) > reference(middle, alpha):
            low = middle
        else:
            high = middle
    return f"{float(f'{high:.2g}'):,.0f}"


def times() -> None:
    print("\nseconds for a plan that is not cached (bar 2)")
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
        print(f"{sites:>9,} sites: {', '.join(cells)}")


def oblivious() -> Table:
    rows = []
    for sites, alpha in ((1, 0.01), (10, 0.01), *SIZES, (1_000_000, 0.01)):
        reference = plan_deterministic(sites, alpha).messages_per_efold
        costs = [plan(sites, alpha, ETA).messages_per_efold for plan in (plan_lattice, plan_blocks, plan_hyz)]
        rows.append((*size(sites, alpha), *(f"{cost / reference:#.3g}" for cost in costs)))
    return Table("plans-oblivious", ("sites", "alpha", "`lattice`", "`blocks`", "`hyz`"), rows)


def sampled() -> Table:
    rows = []
    for sites, alpha in (*SIZES, (1_000_000, 0.01)):
        plan = plan_sampled(sites, alpha, ETA)
        ratio = plan.messages_per_efold / plan_deterministic(sites, alpha).messages_per_efold
        numbers = (f"{plan.allowance:.3g}", f"{plan.reports:,}", f"{plan.shift}", f"{ratio:#.3g}")
        rows.append((*size(sites, alpha), *numbers))
    return Table("plans-sampled", ("sites", "alpha", "E", "m", "b", "ratio"), rows)


def size(sites: int, alpha: float) -> tuple[str, str]:
    return f"{sites:,}", f"{100 * alpha:g} %"


def cheapest() -> Table:
    rows = []
    for sites in (1_000, 10_000, 100_000, 1_000_000):
        best = compare.eligible(compare.compare(sites, 0.01, round_eta(0.05, TYPICAL_ROUND)))[0]
        rows.append((f"{sites:,}", best.name, f"{best.messages_per_efold:,.0f}", f"{best.ratio:.3f}"))
    return Table("scale-plans", ("sites", "cheapest with a proof", "R", "R / deterministic"), rows)


def main() -> Iterator[Table]:
    yield ratios()
    yield limits()
    yield oblivious()
    yield sampled()
    yield cheapest()
    times()
