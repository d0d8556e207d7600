"""The menu: what every scheme would cost, before anything is deployed. What `countless plan` prints."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp, log

from countless.planning.blocks import plan_blocks
from countless.planning.deterministic import plan_deterministic
from countless.planning.dithered import plan_dithered
from countless.planning.hyz import plan_hyz
from countless.planning.lattice import plan_lattice
from countless.planning.partial_dp import plan_partial_dp
from countless.planning.plan import Plan, check_request
from countless.planning.sampled import plan_sampled
from countless.schemes.registry import ADVERSARIES, SCHEMES, require_adversary

Calibration = Callable[[int, float, float], Plan]

DAY = 86_400


def _deterministic(sites: int, alpha: float, eta: float) -> Plan:
    return plan_deterministic(sites, alpha)


# Name on the menu -> (scheme, calibration). `sampled` is priced for large steps, where a counter spends its life.
CALIBRATIONS: dict[str, tuple[str, Calibration]] = {
    "deterministic": ("deterministic", _deterministic),
    "dithered": ("dithered", plan_dithered),
    "sampled": ("sampled", partial(plan_sampled, least_step=2**24)),
    "partial_dp": ("partial_dp", partial(plan_partial_dp, calibration="proven")),
    "partial_dp_paper": ("partial_dp", partial(plan_partial_dp, calibration="paper")),
    "lattice": ("lattice", plan_lattice),
    "blocks": ("blocks", plan_blocks),
    "hyz": ("hyz", plan_hyz),
}
NOT_PROVEN = frozenset({"partial_dp_paper"})  # its constants are the paper's own; `auto` must not choose it


@dataclass(frozen=True, slots=True)
class Candidate:
    """One line of the menu."""

    name: str
    messages_per_efold: float
    ratio: float  # to deterministic
    safe_against: str
    eligible: bool  # proven, and safe against the adversary asked about
    plan: Plan


def menu(sites: int, alpha: float, eta: float, adversary: str = "adaptive") -> dict[str, Candidate]:
    """Every scheme at these numbers, the cheapest first."""
    check_request(sites, alpha, eta)
    require_adversary(adversary)
    yardstick = plan_deterministic(sites, alpha).messages_per_efold
    lines = []
    for name, (scheme, calibrate) in CALIBRATIONS.items():
        plan = calibrate(sites, alpha, eta)
        safe = SCHEMES[scheme].safe_against
        eligible = name not in NOT_PROVEN and ADVERSARIES.index(safe) >= ADVERSARIES.index(adversary)
        ratio = plan.messages_per_efold / yardstick
        lines.append(Candidate(name, plan.messages_per_efold, ratio, safe, eligible, plan))
    return {line.name: line for line in sorted(lines, key=lambda line: line.messages_per_efold)}


def choice(lines: dict[str, Candidate]) -> Candidate:
    """The cheapest that is eligible."""
    return min((line for line in lines.values() if line.eligible), key=lambda line: line.messages_per_efold)


def runner_up(lines: dict[str, Candidate]) -> Candidate:
    """The next best, for the sentence that gives the reason."""
    first = choice(lines)
    rest = [line for line in lines.values() if line.eligible and line is not first]
    return min(rest, key=lambda line: line.messages_per_efold)


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

    Costs are close to powers of the number of sites, so lines through two points of a log-log plot find where two of
    them meet; the number returned is the first one, to within a few per cent, at which the newcomer is cheaper.
    """
    names = [name for name in ("dithered", "sampled", "lattice") if _eligible(name, adversary)]
    found = [(1, "deterministic")]
    for name in names:
        rival = found[-1][1]
        start = _meeting_point(name, rival, alpha, eta, most_sites)
        if start is not None:
            found = [point for point in found if point[0] < start] + [(start, name)]
    return found


def _eligible(name: str, adversary: str) -> bool:
    return ADVERSARIES.index(SCHEMES[CALIBRATIONS[name][0]].safe_against) >= ADVERSARIES.index(adversary)


def _meeting_point(name: str, rival: str, alpha: float, eta: float, most_sites: int) -> int | None:
    def advantage(sites: int) -> float:
        mine, other = CALIBRATIONS[name][1], CALIBRATIONS[rival][1]
        return log(other(sites, alpha, eta).messages_per_efold / mine(sites, alpha, eta).messages_per_efold)

    low, high = 1, most_sites
    at_low, at_high = advantage(low), advantage(high)
    if at_low > 0:
        return low
    if at_high <= 0:
        return None
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
