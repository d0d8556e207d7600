"""The cost of every scheme for a fleet, as `countless plan` prints it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import exp, log

from countless.planning.deterministic import plan_deterministic
from countless.planning.dithered.planner import plan_dithered
from countless.planning.oblivious import plan_lattice
from countless.planning.partial_dp.planner import plan_partial_dp
from countless.planning.plan import Plan, check_request
from countless.planning.sampled import plan_sampled
from countless.planning.traffic import Group, messages_per_efold
from countless.schemes.planned import PlannedScheme
from countless.schemes.registry import SCHEMES, is_safe_against, require_adversary

DAY = 86_400
Calibration = Callable[[int, float, float], Plan]


def _deterministic(sites: int, alpha: float, eta: float) -> Plan:
    return plan_deterministic(sites, alpha)


# The plan of each scheme of ours. `sampled` is priced for large steps, which a counter has most of the time.
CALIBRATIONS: dict[str, Calibration] = {
    "deterministic": _deterministic,
    "dithered": plan_dithered,
    "sampled": partial(plan_sampled, least_step=2**24),
    "partial_dp": plan_partial_dp,
    "partial_dp_paper": partial(plan_partial_dp, calibration="paper"),
    "lattice": plan_lattice,
}


def calibrations() -> dict[str, Calibration]:
    """With those of other packages, whose schemes have them in their caches."""
    planned = {name: scheme for name, scheme in SCHEMES.items() if issubclass(scheme, PlannedScheme)}
    others = {name: scheme.caches[-1].calibrate for name, scheme in planned.items() if name not in CALIBRATIONS}
    return CALIBRATIONS | others


@dataclass(frozen=True, slots=True)
class Candidate:
    name: str
    messages_per_efold: float
    ratio: float  # to deterministic
    safe_against: str
    eligible: bool  # safe against the adversary asked about
    plan: Plan


def compare(
    sites: int, alpha: float, eta: float, adversary: str = "adaptive", groups: list[Group] | None = None
) -> dict[str, Candidate]:
    """Every scheme at these numbers, the cheapest first; `groups` say how the traffic is shared, if not evenly."""
    check_request(sites, alpha, eta)
    require_adversary(adversary)
    groups = groups or [Group(sites, 1 / sites)]
    deterministic = messages_per_efold(plan_deterministic(sites, alpha), groups)
    candidates = []
    for name, calibrate in calibrations().items():
        plan = calibrate(sites, alpha, eta)
        cost, safe = messages_per_efold(plan, groups), SCHEMES[name].safe_against
        candidates.append(Candidate(name, cost, cost / deterministic, safe, is_safe_against(name, adversary), plan))
    return {each.name: each for each in sorted(candidates, key=lambda each: each.messages_per_efold)}


def eligible(candidates: dict[str, Candidate]) -> list[Candidate]:
    """Those that are eligible, the cheapest first; at least two."""
    return [each for each in candidates.values() if each.eligible]


def messages_until(total: float, messages_per_efold: float) -> float:
    """Messages from the first event to `total`: one for each event while that is cheaper, then so many per e-fold."""
    if total <= messages_per_efold:
        return total
    return messages_per_efold * (1 + log(total / messages_per_efold))


def messages_on_day(day: int, events_per_day: float, messages_per_efold: float) -> float:
    """Messages on the n-th day (from 1) of a counter that has run at one rate since its first event."""
    after = messages_until(day * events_per_day, messages_per_efold)
    return after - messages_until((day - 1) * events_per_day, messages_per_efold)


def crossovers(alpha: float, eta: float, adversary: str, most_sites: int = 1_000_000) -> list[tuple[int, str]]:
    """From how many sites on each scheme is the cheapest eligible one: [(1, "deterministic"), ...].

    It starts with the cheapest scheme for one site. The next one is that which is cheaper from the fewest sites on.
    """

    known = calibrations()

    @cache
    def cost(name: str, sites: int) -> float:
        return known[name](sites, alpha, eta).messages_per_efold

    others = [name for name in known if is_safe_against(name, adversary)]
    found = [(1, min(others, key=lambda name: cost(name, 1)))]
    while True:
        start, best = found[-1]
        others.remove(best)
        meetings = [(_crossover(partial(_advantage, cost, name, best), start, most_sites), name) for name in others]
        later = [(sites, name) for sites, name in meetings if sites is not None]
        if not later:
            return found
        sites, name = min(later)
        found = [point for point in found if point[0] < sites] + [(sites, name)]


def _advantage(cost: Callable[[str, int], float], name: str, other: str, sites: int) -> float:
    return log(cost(other, sites) / cost(name, sites))


def _crossover(advantage: Callable[[int], float], low: int, high: int) -> int | None:
    """The first number of sites, to within a few per cent, at which there is an advantage; None if there is none.

    Costs are close to powers of the number of sites, so lines through two points of a log-log plot find where two of
    them meet.
    """
    at_low, at_high = advantage(low), advantage(high)
    if at_high <= 0:
        return None
    if at_low > 0:
        return low
    while high > low * 1.05 + 1:
        share = min(0.9, max(0.1, at_low / (at_low - at_high)))
        middle = round(exp(log(low) + share * (log(high) - log(low))))
        middle = min(max(middle, low + 1), high - 1)
        at_middle = advantage(middle)
        if at_middle > 0:
            high, at_high = middle, at_middle
        else:
            low, at_low = middle, at_middle
    return high
