"""The fault simulator: clients and coordinators of production, in a world that fails, from one seed.

    python -m simulator --seed 7 [--profile windows] [--store cluster]
    python -m simulator --seeds 0:100000
    python -m simulator --seeds 0:10000 --record FILE
    python -m simulator --compare FILE

Real are the client with its session, budgets, windows and files, the site server with its registry, the commit
pipeline and the stores. Simulated are the network, the disk's failures, the threads, the clocks and the random numbers.
design/simulation.md lists the faults and the checks.
"""

import argparse
import os
import sys
from pathlib import Path
from time import monotonic

from countless.errors import InvariantBroken
from simulator import outcomes
from simulator.runs import Run
from simulator.trial import ACTIONS, PROFILES, Trial
from simulator.world import STORES


def main() -> None:
    parser = argparse.ArgumentParser("python -m simulator", description="Clients, coordinators and faults.")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, help="one seed (default: 0)")
    seeds.add_argument("--seeds", type=_range, help="all seeds from A to B - 1, as A:B; or the first N, as N")
    parser.add_argument("--profile", choices=PROFILES, help="instead of one that the seed chooses")
    parser.add_argument("--store", choices=STORES, help="instead of one that the seed chooses")
    parser.add_argument("--actions", type=int, default=ACTIONS, help=f"until everything heals (default: {ACTIONS})")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="that run seeds (default: all)")
    record = parser.add_mutually_exclusive_group()
    record.add_argument("--record", type=Path, metavar="FILE", help="write a digest of every message of each seed")
    record.add_argument("--compare", type=Path, metavar="FILE", help="name the seeds that differ from those recorded")
    options = parser.parse_args()
    if (options.record or options.compare) and os.environ.get("PYTHONHASHSEED") != "0":
        parser.error("a record needs PYTHONHASHSEED=0")
    recorded = outcomes.read(options.compare) if options.compare else {}
    if options.seeds is None and (options.record or not recorded):
        trial = Trial.drawn(options.seed or 0, options.profile, options.store)
        try:
            print(trial._replace(actions=options.actions).run())
        except InvariantBroken as error:
            sys.exit(str(error))
        return
    began = monotonic()
    run = Run(options.seeds or outcomes.consecutive(recorded), options.profile, options.store, options.actions)
    found = run.on_cores(options.cores)
    wrong = len(found.failures)
    print(f"{len(run.seeds):,} seeds, {wrong} failed, {monotonic() - began:.1f} s")
    if options.record:
        outcomes.write(options.record, found.digests)
    if options.compare:
        differing = outcomes.differing(recorded, found.digests)
        wrong += len(differing)
        print(f"{len(differing)} differ from {options.compare}", *differing)
    sys.exit(wrong > 0)


def _range(text: str) -> range:
    first, colon, last = text.rpartition(":")
    return range(int(first) if colon else 0, int(last))


main()
