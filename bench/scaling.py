"""The tables of docs/arena.md: how measured messages grow with sites, alpha and the total."""

from collections.abc import Sequence
from math import log

from countless.lab.arena.frameworks.table import CLAIMS, measure
from countless.lab.arena.scaling import line, messages_at, messages_per_efold, power

SCHEMES = ("sampled", "dithered", "auto", "deterministic")
SITES = (256, 512, 1024, 2048)
ALPHAS = (0.005, 0.01, 0.02)
TOTALS = (10**6, 3 * 10**6, 10**7, 3 * 10**7, 10**8)


def row(name: str, messages: Sequence[float], fit: str) -> None:
    print(f"{name:>24} " + " ".join(f"{number:>10,.0f}" for number in messages) + f"  {fit}", flush=True)


def main() -> None:
    """Three e-folds of regular traffic for each number, seed 1, delta = 5 %."""
    print(f"messages per e-fold, alpha = 1 %, sites {SITES}: the paper's slope is 1/2, that of deterministic 1")
    for scheme in SCHEMES:
        costs = [messages_per_efold(scheme, sites, 0.01) for sites in SITES]
        row(scheme, costs, f"slope {power(SITES, costs).slope:.2f}")
    print(f"\nmessages per e-fold, 256 sites, alpha {ALPHAS}: the paper's slope is -1")
    for scheme in SCHEMES:
        costs = [messages_per_efold(scheme, 256, alpha) for alpha in ALPHAS]
        row(scheme, costs, f"slope {power(ALPHAS, costs).slope:.2f}")
    print(f"\nmessages by total, 512 sites, alpha = 5 %, totals {TOTALS}: a line in ln N")
    for scheme in ("sampled", "dithered", "partial_dp", "deterministic"):
        messages = messages_at(scheme, 512, 0.05, TOTALS)
        row(scheme, messages, f"explains {line([log(total) for total in TOTALS], messages).explained:.2%}")


def frameworks() -> None:
    """What the paper argues against, at a size where it still can be played."""
    print("messages and worst error / alpha: 8 sites, alpha = 20 %, delta = 5 %, 20,000 events, stop-after-jump")
    for name in CLAIMS:
        found = measure(name, 8, 0.2, 0.05, 20_000, seed=1)
        row(found.name, [found.messages], f"{found.worst:.2f}  {found.claim}")
