"""The numbers of `countless lab report`: attacked games, plans over sites and alpha, the tournament.

Costs come from the plans (`countless.schemes.compare`), errors from games. `figures.py` draws them.
"""

from dataclasses import asdict, dataclass
from math import log, sqrt
from typing import Any

from countless.schemes.compare import calibrations, messages_until
from countless_lab.arena.framework_table import Row, measure
from countless_lab.arena.match import Setting, run, trace_of
from countless_lab.arena.parallel import in_parallel
from countless_lab.arena.registry import adversary_named
from countless_lab.arena.tournament import ADVERSARY_NAMES, SCHEME_NAMES, as_json, settings

ETA = 1e-4  # the failure probability of one round
DELTA = 0.05
SITES = tuple(4**i for i in range(2, 9))  # 16 .. 65,536
ALPHAS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
MAP_SITES = (16, 64, 128, 256, 1024, 4096, 16384, 65536)
MAP_ALPHAS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1)
TYPICAL_SITES, TYPICAL_ALPHA = 1000, 0.01
ROBUST = ("deterministic", "dithered", "sampled")  # what `auto` chooses among against adaptive traffic
SHOWN = ("partial_dp_paper", "partial_dp", "deterministic", "sampled", "dithered", "auto", "lattice")
POINTS = 1500  # of a path, at most


@dataclass(frozen=True)
class Attacked:
    scheme: str
    totals: list[int]
    errors: list[float]


@dataclass(frozen=True)
class ReportData:
    attacked: list[Attacked]
    attack: dict[str, Any]
    by_sites: dict[str, list[float]]
    lower_bound: list[float]
    by_alpha: dict[str, list[float]]
    by_total: dict[str, list[float]]
    totals: list[float]
    cheapest: list[list[str]]
    ratio: list[list[float]]
    tournament: list[dict[str, Any]]
    frameworks: list[Row]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Config:
    seed: int = 1
    games: int = 2
    jobs: int = 1
    sites: int = 256  # of the tournament
    alpha: float = 0.05
    events: int = 20_000
    path_sites: int = 1024
    path_alpha: float = 0.01
    path_events: int = 300_000


def collect(config: Config) -> ReportData:
    known = calibrations()
    sites = [(name, k, TYPICAL_ALPHA) for name in known for k in SITES]
    alphas = [(name, TYPICAL_SITES, alpha) for name in known for alpha in ALPHAS]
    grid = [(name, k, alpha) for name in ROBUST for alpha in MAP_ALPHAS for k in MAP_SITES]
    tasks = list(dict.fromkeys(sites + alphas + grid))
    costs = dict(zip(tasks, in_parallel(price, tasks, config.jobs), strict=True))
    by_sites = _with_auto({name: [costs[name, k, TYPICAL_ALPHA] for k in SITES] for name in known})
    by_alpha = _with_auto({name: [costs[name, TYPICAL_SITES, alpha] for alpha in ALPHAS] for name in known})
    totals = [10**e for e in range(3, 13)]
    per_efold = {name: values[ALPHAS.index(TYPICAL_ALPHA)] for name, values in by_alpha.items()}
    cheapest, ratio = _map(costs)
    return ReportData(
        attacked=_attacked(config),
        attack={"sites": config.path_sites, "alpha": config.path_alpha, "adversary": "stop-after-jump"},
        by_sites=by_sites,
        lower_bound=[sqrt(k) / TYPICAL_ALPHA for k in SITES],
        by_alpha=by_alpha,
        by_total={name: [messages_until(total, cost) for total in totals] for name, cost in per_efold.items()},
        totals=[float(total) for total in totals],
        cheapest=cheapest,
        ratio=ratio,
        tournament=_tournament(config),
        frameworks=_frameworks(config.seed),
    )


def price(name: str, sites: int, alpha: float) -> float:
    """Messages per e-fold by the plan."""
    return calibrations()[name](sites, alpha, ETA).messages_per_efold


def _with_auto(costs: dict[str, list[float]]) -> dict[str, list[float]]:
    auto = [min(prices) for prices in zip(*(costs[name] for name in ROBUST), strict=True)]
    everything = {**costs, "auto": auto}
    return {name: everything[name] for name in SHOWN}


def _map(costs: dict[tuple[str, int, float], float]) -> tuple[list[list[str]], list[list[float]]]:
    cheapest, ratio = [], []
    for alpha in MAP_ALPHAS:
        best = [min(ROBUST, key=lambda name: costs[name, k, alpha]) for k in MAP_SITES]
        cheapest.append(best)
        ratio.append(
            [costs[name, k, alpha] / costs["deterministic", k, alpha] for name, k in zip(best, MAP_SITES, strict=True)]
        )
    return cheapest, ratio


def _attacked(config: Config) -> list[Attacked]:
    adversary = adversary_named("stop-after-jump")
    tasks = [
        (Setting(scheme, adversary, config.path_sites, config.path_alpha, DELTA, config.path_events), config.seed)
        for scheme in ("hyz", "lattice", "auto")
    ]
    return in_parallel(_one_path, tasks, config.jobs)


def _one_path(setting: Setting, seed: int) -> Attacked:
    """The worst point of each cell of a logarithmic scale."""
    cells: dict[int, tuple[int, float]] = {}
    path = trace_of(setting, seed)
    scale = POINTS / log(setting.events)
    for total, error in path:
        cell = int(log(total) * scale)
        if cell not in cells or abs(error) > abs(cells[cell][1]):
            cells[cell] = (total, error)
    points = sorted(cells.values())
    return Attacked(setting.scheme, [total for total, _ in points], [error for _, error in points])


def _tournament(config: Config) -> list[dict[str, Any]]:
    base = {"sites": config.sites, "alpha": config.alpha, "delta": DELTA, "events": config.events}
    schemes = ",".join(name for name in SCHEME_NAMES if name != "exact")
    pairs = settings(schemes, ",".join(ADVERSARY_NAMES), base)
    return [as_json(match, config.seed) for match in run(pairs, config.games, config.seed, jobs=config.jobs)]


def _frameworks(seed: int) -> list[Row]:
    names = ("hyz", "sketch switching", "difference estimators", "private median", "deterministic", "dithered")
    return [measure(name, 8, 0.4, DELTA, 1000, seed) for name in names]
