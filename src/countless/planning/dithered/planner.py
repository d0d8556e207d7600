"""Plans for `dithered` rounds: secret lattices and secret thresholds (design/proofs/dithered.md).

    plan.py               the plan
    schedule.py           exact numbers for a given shape (lengths and dithers of the phases)
    shape_search.py       which shape to try
    ordered_volume.py     volumes of ordered points in windows
    tails.py              tails of a sum of uniforms
    check.py              every inequality once more, computed in another way

`plan_dithered` returns only plans that `check_dithered` has verified. The check shares only the plan with the others.
"""

from functools import lru_cache

from countless.planning.dithered.check import check_dithered
from countless.planning.dithered.plan import DitheredPlan
from countless.planning.dithered.schedule import Round, candidate_rounds, solve_certain
from countless.planning.dithered.shape_search import find_shape
from countless.planning.plan import Cause, check_request


@lru_cache(maxsize=256)
def plan_dithered(sites: int, alpha: float, eta: float) -> DitheredPlan:
    """The cheapest round found for this many sites, verified.

    >>> plan = plan_dithered(1000, 0.01, 1e-4)
    >>> plan.step(10_000_000)
    1245
    >>> lowest, highest, unit = plan.answer_range(10_000_000, 1245, 0)
    >>> lowest < plan.answer(10_000_000, 1245, 0) * unit < highest
    True
    """
    check_request(sites, alpha, eta)
    rounds = [solve_certain(sites, alpha)]
    shape = find_shape(sites, alpha, eta)
    if shape is not None:
        rounds += candidate_rounds(sites, alpha, eta, shape)
    best = min(rounds, key=lambda found: found.cost(sites, alpha))
    plan = DitheredPlan(sites, alpha, eta, best.allowance, best.phases, _reasons(best, sites, alpha, eta))
    check_dithered(plan)
    return plan


def _reasons(best: Round, sites: int, alpha: float, eta: float) -> tuple[Cause, ...]:
    phases = best.phases
    ratio = (1 + alpha) / (1 - alpha)
    tightest = max(range(len(phases)), key=lambda j: phases[j].high - ratio * phases[j].low)
    first, last = phases[0], phases[-1]
    certain = last.slack_late >= sites / 2
    return (
        Cause(
            "allowance",
            best.allowance,
            f"phase {tightest}: n0 + high <= (1+alpha)/(1-alpha) (n0 + low) with n0 = allowance/alpha",
        ),
        Cause("phases", len(phases), "fewest messages per e-fold, synchronisation of two per site included"),
        Cause("length", first.length, "phase 0: length - dither/2 >= slack, so no phase ends before the first event"),
        Cause("dither", first.dither, "thresholds are uniform; wider ones reveal less and cost allowance"),
        Cause(
            "slack",
            last.slack_late,
            f"last phase: {'half a step per site, certain' if certain else 'transcripts x tail <= risk'}",
        ),
        Cause("risk", sum(phase.risk for phase in phases), f"sum over the phases <= eta = {eta:g}"),
    )
