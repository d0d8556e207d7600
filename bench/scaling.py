"""How measured messages grow with sites, alpha and the total; and the frameworks that the paper argues against."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log, log10

from countless.lab.arena.adversaries.controls import RoundRobin
from countless.lab.arena.frameworks.table import CLAIMS, measure
from countless.lab.arena.match import Setting, game_of
from tools.tables import Table

SCHEMES = {"sampled": "1/2", "dithered": "1/2", "auto": "1/2", "deterministic": "1"}  # the paper's exponent of k
SITES = (256, 512, 1024, 2048)
ALPHAS = (0.005, 0.01, 0.02)
TOTALS = (10**6, 3 * 10**6, 10**7, 3 * 10**7, 10**8)
START, END = 10**6, 2 * 10**7  # after the exact start of every scheme at the sizes used; three e-folds
_TRAFFIC = RoundRobin(share=0.1)


def main() -> Iterator[Table]:
    """Three e-folds of regular traffic for each number, seed 1, delta = 5 %. Some minutes."""
    rows = []
    for scheme, exponent in SCHEMES.items():
        costs = [messages_per_efold(scheme, sites, 0.01) for sites in SITES]
        rows.append((f"`{scheme}`", *_whole(costs), f"{power(SITES, costs).slope:.2f}", exponent))
    sites = (f"{number:,}" for number in SITES)
    yield Table("arena-sites", ("alpha = 1 %, sites", *sites, "slope in k", "the paper"), rows)
    rows = []
    for scheme in SCHEMES:
        costs = [messages_per_efold(scheme, 256, alpha) for alpha in ALPHAS]
        rows.append((f"`{scheme}`", *_whole(costs), f"{power(ALPHAS, costs).slope:.2f}", "-1"))
    alphas = (f"{alpha:.1%}" for alpha in ALPHAS)
    yield Table("arena-alpha", ("256 sites, alpha", *alphas, "slope in alpha", "the paper"), rows)
    rows = []
    for scheme in ("sampled", "dithered", "partial_dp", "deterministic"):
        messages = messages_at(scheme, 512, 0.05, TOTALS)
        explained = line([log(total) for total in TOTALS], messages).explained
        rows.append((f"`{scheme}`", *_whole(messages), f"{explained:.2%}"))
    totals = (f"{total / 10 ** int(log10(total)):.0f}e{int(log10(total))}" for total in TOTALS)
    yield Table("arena-total", ("512 sites, alpha = 5 %, messages by total", *totals, "line in ln N explains"), rows)


def _whole(numbers: list[float] | list[int]) -> list[str]:
    return [f"{number:,.0f}" for number in numbers]


def frameworks() -> Iterator[Table]:
    """8 sites, alpha = 20 %, delta = 5 %, 20,000 events, stop-after-jump, seed 1."""
    rows = []
    for name, claim in CLAIMS.items():
        found = measure(name, 8, 0.2, 0.05, 20_000, seed=1)
        rows.append((name, f"{found.messages:,}", f"{found.worst:.2f}", claim))
    yield Table("arena-frameworks", ("tracker", "messages", "worst error / alpha", "what the paper says of it"), rows)


@dataclass(frozen=True)
class Fit:
    """A straight line through points, and the share of the variance that it explains."""

    slope: float
    intercept: float
    explained: float


def line(xs: Sequence[float], ys: Sequence[float]) -> Fit:
    """Least squares."""
    n = len(xs)
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    intercept = mean_y - slope * mean_x
    left = sum((y - slope * x - intercept) ** 2 for x, y in zip(xs, ys, strict=True))
    spread_y = sum((y - mean_y) ** 2 for y in ys)
    return Fit(slope, intercept, 1 - left / spread_y if spread_y else 1.0)


def power(xs: Sequence[float], ys: Sequence[float]) -> Fit:
    """The exponent: a line through the logarithms."""
    return line([log(x) for x in xs], [log(y) for y in ys])


def messages_at(
    scheme: str, sites: int, alpha: float, totals: Sequence[int], *, delta: float = 0.05, seed: int = 1
) -> list[int]:
    """Messages sent by the time the total reaches each number of a rising list."""
    game = game_of(Setting(scheme, _TRAFFIC, sites, alpha, delta, totals[-1]), seed)
    found = []
    for total in totals:
        game.play(total)
        found.append(game.score(seed).messages)
    return found


def messages_per_efold(scheme: str, sites: int, alpha: float, *, delta: float = 0.05, seed: int = 1) -> float:
    """Messages while the total grows e-fold, averaged over three e-folds."""
    before, after = messages_at(scheme, sites, alpha, (START, END), delta=delta, seed=seed)
    return (after - before) / log(END / START)
