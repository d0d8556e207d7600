"""The fault simulator: clients and coordinators of production, in a world that fails, from one seed.

    python -m countless.simulator --seed 7 [--profile windows] [--store cluster]
    python -m countless.simulator --seeds 0:100000

Real are the client with its session, budgets, windows and files, the site server with its registry, the commit
pipeline and the stores. Simulated are the network, the disk's failures, the threads, the clocks and the random numbers.
design/simulation.md lists the faults and the checks.
"""

import argparse
import os
import sys
from time import monotonic

from countless.errors import InvariantBroken
from countless.simulator.runs import Run
from countless.simulator.trial import ACTIONS, PROFILES, Trial
from countless.simulator.world import STORES


def main() -> None:
    parser = argparse.ArgumentParser("python -m countless.simulator", description="Clients, coordinators and faults.")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, help="one seed (default: 0)")
    seeds.add_argument("--seeds", type=_range, help="all seeds from A to B - 1, as A:B; or the first N, as N")
    parser.add_argument("--profile", choices=PROFILES, help="instead of one that the seed chooses")
    parser.add_argument("--store", choices=STORES, help="instead of one that the seed chooses")
    parser.add_argument("--actions", type=int, default=ACTIONS, help=f"until everything heals (default: {ACTIONS})")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="that run seeds (default: all)")
    options = parser.parse_args()
    if options.seeds is None:
        trial = Trial.drawn(options.seed or 0, options.profile, options.store)
        try:
            print(trial._replace(actions=options.actions).run())
        except InvariantBroken as error:
            sys.exit(str(error))
        return
    began = monotonic()
    failed = Run(options.seeds, options.profile, options.store, options.actions).on_cores(options.cores)
    print(f"{len(options.seeds):,} seeds, {failed} failed, {monotonic() - began:.1f} s")
    sys.exit(failed > 0)


def _range(text: str) -> range:
    first, colon, last = text.rpartition(":")
    return range(int(first) if colon else 0, int(last))


main()
