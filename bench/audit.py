"""How often `countless lab audit` rejects seeded defects at its default setting."""

from collections.abc import Iterator
from os import environ

from countless.planning.partial_dp.planner import plan_partial_dp
from countless.randomness import SeededRandom
from countless_lab.arena.parallel import in_parallel
from countless_lab.audit.defects import DEFECTS, UNSEEN
from countless_lab.audit.run import measure_power
from countless_lab.confidence import lower_limit, upper_limit
from tools.tables import Table

RUNS = int(environ.get("RUNS", "100"))  # of the first defects
FIRST, COSTLY = 8, {"noise-1.1-too-small", "noise-1.02-too-small", *UNSEEN}  # what is found late, or not at all


def main() -> Iterator[Table]:
    """At 1,000 sites, alpha = 1 %. Half an hour of processor time; RUNS=30 is shorter."""
    tried = {
        name: max(1, RUNS // (50 if name in COSTLY else 1 if number < FIRST else 4))
        for number, name in enumerate(DEFECTS | UNSEEN)
    }
    found = in_parallel(_rejected, [*tried.items()], jobs=None)
    rows = []
    for (name, runs), seen in zip(tried.items(), found, strict=True):
        described = (DEFECTS | UNSEEN)[name].__doc__
        power = f"{lower_limit(seen, runs, 0.975):.2f} to {upper_limit(seen, runs, 0.975):.2f}"
        rows.append((f"`{name}`", (described or "Scales that are all too small.").strip(), f"{seen} of {runs}", power))
    yield Table("audit-power", ("seeded defect", "what it does", "rejected", "power, 95 %"), rows)


def _rejected(name: str, runs: int) -> int:
    plan = plan_partial_dp(1000, 0.01, 1e-4)
    return measure_power(name, plan.shape, plan.epsilon, 1000, runs, SeededRandom(1))
