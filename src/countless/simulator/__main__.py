"""The fault simulator: clients and a coordinator of production, in a world that fails, from one seed.

    python -m countless.simulator --seed 7 [--profile windows] [--seeds 100]

Real are the client with its session, budgets, windows and files, the site server with its registry, the commit
pipeline and the stores. Simulated are the network, the disk's failures, the threads, the clocks and the random numbers.
docs/simulation.md lists the faults and the checks.
"""

import argparse
import sys
from time import process_time

from countless.errors import InvariantBroken
from countless.simulator.trial import PROFILES, Trial


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m countless.simulator", description="Clients and a coordinator, with faults."
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--profile", choices=PROFILES, help="instead of one that the seed chooses")
    options = parser.parse_args()
    started, failed = process_time(), 0
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            done = Trial.drawn(seed, options.profile).run()
            if options.seeds == 1:
                print(done)
        except InvariantBroken as error:
            failed += 1
            print(error, file=sys.stderr)
    print(f"{options.seeds} seeds, {failed} failed, {process_time() - started:.1f} s")
    sys.exit(failed > 0)


main()
