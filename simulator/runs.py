"""Many seeds, on several cores. Every failure is printed when it is found, and what is done once a minute."""

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from time import monotonic
from typing import NamedTuple

from countless.errors import InvariantBroken
from simulator.outcomes import FAILED
from simulator.trial import ACTIONS, Trial

PROGRESS_S = 60.0
_SEEDS_PER_TASK = 20


def _collect_rarely() -> None:
    """Collect garbage rarely: imported modules are none."""
    gc.freeze()
    gc.set_threshold(50_000)


class Outcomes(NamedTuple):
    digests: dict[int, str]  # by seed
    failures: list[str]  # each has the command that repeats its seed


class Run(NamedTuple):
    """Seeds, and what is chosen for all of them instead of by each seed."""

    seeds: range
    profile: str | None = None
    store: str | None = None
    actions: int = ACTIONS

    def outcomes(self) -> Outcomes:
        found = Outcomes({}, [])
        for seed in self.seeds:
            try:
                result = Trial.drawn(seed, self.profile, self.store)._replace(actions=self.actions).run()
                found.digests[seed] = result.digest
            except InvariantBroken as error:
                found.digests[seed] = FAILED
                found.failures.append(str(error))
        return found

    def parts(self) -> Iterator["Run"]:
        for first in range(0, len(self.seeds), _SEEDS_PER_TASK):
            yield self._replace(seeds=self.seeds[first : first + _SEEDS_PER_TASK])

    def on_cores(self, cores: int) -> Outcomes:
        began, all_found = monotonic(), Outcomes({}, [])
        report_at = began + PROGRESS_S
        with ProcessPoolExecutor(cores, initializer=_collect_rarely) as pool:
            waiting: set[Future[Outcomes]] = {pool.submit(part.outcomes) for part in self.parts()}
            try:
                while waiting:
                    done, waiting = wait(waiting, max(0.0, report_at - monotonic()), FIRST_COMPLETED)
                    for found in (future.result() for future in done):
                        all_found.digests.update(found.digests)
                        all_found.failures.extend(found.failures)
                        for failure in found.failures:
                            print(failure, file=sys.stderr, flush=True)
                    if monotonic() >= report_at:
                        report_at += PROGRESS_S
                        minutes = (monotonic() - began) / 60
                        seeds = f"{len(all_found.digests):,} of {len(self.seeds):,} seeds"
                        print(f"{seeds}, {len(all_found.failures)} failed, {minutes:.0f} min", flush=True)
            except BaseException:  # such as Ctrl-C: what has not begun is not waited for
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return all_found
