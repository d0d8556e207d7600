"""The growth of measured messages with sites, alpha and the total: the paper's main result, for every scheme."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any

from countless.core.parameters import require_alpha, require_integer
from countless.errors import InvalidParameter, UnknownName
from countless.planning.failure_budget import round_eta
from countless.planning.partial_dp.paper import paper_constant
from countless.schemes.registry import SCHEMES
from countless_lab.arena.adversaries.controls import RoundRobin
from countless_lab.arena.match import Setting, game_of
from countless_lab.arena.parallel import Progress, in_parallel
from countless_lab.simulation.world import NO_SECRETS

PAPER = "partial_dp_paper"  # its cost is also shown divided by the paper's C
ABOVE = "sites above 1/alpha^2"
START = 10**9  # counted before the measurement begins, so that every scheme has left its exact start
EFOLDS, EFOLDS_ABOVE = 2, 10  # of the total; above 1/alpha^2 sites a round takes some of them
_TRAFFIC = RoundRobin(share=0.1)


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


@dataclass(frozen=True)
class Request:
    """A measurement. Each axis varies one number; the others are the first two fields."""

    sites: int = 256
    alpha: float = 0.01
    delta: float = 0.05
    by_sites: tuple[int, ...] = (64, 256, 1024)
    by_alpha: tuple[float, ...] = (0.005, 0.01, 0.02)
    above: tuple[int, ...] = (256, 1024, 4096)  # more sites than 1/alpha_above^2
    alpha_above: float = 0.2
    efolds: int = 6  # of the total, for the line in ln N
    seeds: int = 3
    schemes: tuple[str, ...] = tuple(name for name in SCHEMES if name != "exact")

    def __post_init__(self) -> None:
        for scheme in self.schemes:
            if scheme not in SCHEMES or scheme == "exact":
                raise UnknownName("scheme", scheme, [name for name in SCHEMES if name != "exact"])
        for name, values in (("by_sites", self.by_sites), ("by_alpha", self.by_alpha), ("above", self.above)):
            if len(set(values)) < 2:
                raise InvalidParameter(name, values, "two numbers or more: a slope needs them")
        for sites in (self.sites, *self.by_sites, *self.above):
            require_integer("sites", sites, 1)
        for alpha in (self.alpha, *self.by_alpha, self.alpha_above):
            require_alpha(alpha)
        if min(self.above) * self.alpha_above**2 <= 1:
            raise InvalidParameter("above", min(self.above), f"above 1/{self.alpha_above:g}^2")
        require_integer("efolds", self.efolds, 2)
        require_integer("seeds", self.seeds, 1)


@dataclass(frozen=True)
class Curve:
    """Messages of one scheme along one axis, the mean over the seeds, and the fit.

    Along `sites`, `sites above 1/alpha^2` and `1/alpha` messages are per e-fold, and the slope is an exponent. Along
    `ln N` they are in all, and the slope is the messages per e-fold.
    """

    scheme: str
    axis: str
    xs: tuple[float, ...]
    messages: tuple[float, ...]
    spread: tuple[float, ...]  # largest minus smallest over the seeds
    slope: float
    explained: float
    unrandomised: tuple[bool, ...]  # a scheme with secrets ran without them: the point says nothing about its noise

    @property
    def cells(self) -> list[str]:
        """The messages as text; a star marks a point without secrets."""
        return [f"{messages:,.0f}{'*' * mark}" for messages, mark in zip(self.messages, self.unrandomised, strict=True)]


@dataclass(frozen=True)
class Run:
    """Messages since the start by the end of each e-fold, and whether the last round had secrets."""

    messages: tuple[int, ...]
    randomised: bool


def measure(request: Request, jobs: int | None = 1, progress: Progress | None = None) -> list[Curve]:
    """Every scheme along every axis."""
    axes: dict[str, list[tuple[int, float, int]]] = {
        "sites": [(sites, request.alpha, EFOLDS) for sites in request.by_sites],
        ABOVE: [(sites, request.alpha_above, EFOLDS_ABOVE) for sites in request.above],
        "1/alpha": [(request.sites, alpha, EFOLDS) for alpha in request.by_alpha],
    }
    seeds = range(1, request.seeds + 1)
    longest = (request.sites, request.alpha, request.efolds)
    sizes = dict.fromkeys([*(size for axis in axes.values() for size in axis), longest])
    points = [(scheme, *size, request.delta, seed) for scheme in request.schemes for size in sizes for seed in seeds]
    found = dict(zip(points, in_parallel(_run, points, jobs, progress=progress), strict=True))
    curves = []
    for scheme in request.schemes:
        for name, axis in axes.items():
            runs = [[found[scheme, *size, request.delta, seed] for seed in seeds] for size in axis]
            costs = [[run.messages[-1] / size[-1] for run in at] for at, size in zip(runs, axis, strict=True)]
            marks = tuple(_unrandomised(scheme, at) for at in runs)
            xs = tuple(1 / alpha if name == "1/alpha" else float(sites) for sites, alpha, _ in axis)
            curves.append(_curve(scheme, name, xs, costs, power, marks))
            if scheme == PAPER:
                constants = [_constant(sites, request.delta) for sites, _, _ in axis]
                divided = [[cost / C for cost in at] for C, at in zip(constants, costs, strict=True)]
                curves.append(_curve(f"{scheme} / C", name, xs, divided, power, marks))
        long = [found[scheme, *longest, request.delta, seed] for seed in seeds]
        logs = tuple(float(efold) for efold in range(1, request.efolds + 1))
        by_total = list(map(list, zip(*(run.messages for run in long), strict=True)))
        curves.append(_curve(scheme, "ln N", logs, by_total, line, (_unrandomised(scheme, long),) * len(logs)))
    return curves


def _unrandomised(scheme: str, runs: Sequence[Run]) -> bool:
    return scheme not in NO_SECRETS and not any(run.randomised for run in runs)


def _constant(sites: int, delta: float) -> float:
    """C of a round with a typical share of delta; that of others differs by a few per cent."""
    return paper_constant(sites, round_eta(delta, 10))


def _curve(
    scheme: str,
    axis: str,
    xs: tuple[float, ...],
    costs: Sequence[Sequence[float]],
    fit: Callable[..., Fit],
    unrandomised: tuple[bool, ...],
) -> Curve:
    means = tuple(sum(at) / len(at) for at in costs)
    fitted = fit(xs, means)
    spread = tuple(float(max(at) - min(at)) for at in costs)
    return Curve(scheme, axis, xs, means, spread, fitted.slope, fitted.explained, unrandomised)


def _run(scheme: str, sites: int, alpha: float, efolds: int, delta: float, seed: int) -> Run:
    totals = [START, *(round(START * exp(efold)) for efold in range(1, efolds + 1))]
    game = game_of(Setting(scheme, _TRAFFIC, sites, alpha, delta, totals[-1], head_start=START // sites), seed)
    sent = []
    for total in totals:
        game.play(total)
        sent.append(game.score(seed).messages)
    return Run(tuple(messages - sent[0] for messages in sent[1:]), game.score(seed).randomised)


def as_json(request: Request, curves: Sequence[Curve]) -> dict[str, Any]:
    return {"request": asdict(request), "start": START, "curves": [asdict(curve) for curve in curves]}


def rows(curves: Sequence[Curve]) -> list[tuple[str | float, ...]]:
    """For a CSV file: one row for each point."""
    heads = ("scheme", "axis", "x", "messages", "spread", "slope", "explained", "unrandomised")
    made: list[tuple[str | float, ...]] = [heads]
    for curve in curves:
        for x, messages, spread, mark in zip(curve.xs, curve.messages, curve.spread, curve.unrandomised, strict=True):
            made.append((curve.scheme, curve.axis, x, messages, spread, curve.slope, curve.explained, int(mark)))
    return made
