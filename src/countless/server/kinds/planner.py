"""Computes the plans of coming rounds in a thread of its own, so that no round start waits for a plan."""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future

from countless.core.estimator import RoundContext, Scheme
from countless.errors import PlanError
from countless.server.kinds.counter import PlanKey, TrackedCounter

log = logging.getLogger("countless.planner")

COUNTERS_PER_SLICE = 1000  # about a millisecond; 20 if many were created since the last call


class Planner:
    """One plan at a time, for a key that two calls in a row want: while a fleet connects, the key keeps changing."""

    def __init__(self, executor: Executor) -> None:
        self._planned: set[PlanKey] = set()
        self._wanted: dict[str, PlanKey] = {}  # by counter, as of the last call
        self._thread = executor
        self.busy: Future[None] = Future()
        self.busy.set_result(None)

    def plan_in_slices(self, counters: Iterable[TrackedCounter]) -> Iterator[None]:
        """`next_plan` takes time for every site, so it is called only when `plan_version` has changed. Yields between
        slices, for other work of the loop.
        """
        if not self.busy.done():
            return
        before, self._wanted = self._wanted, {}
        for number, counter in enumerate(list(counters), start=1):
            if number % COUNTERS_PER_SLICE == 0:
                yield
            if counter.plan_version == counter.planned_for:
                continue
            ahead = counter.next_plan()
            if ahead is None or ahead[0] in self._planned:
                counter.planned_for = counter.plan_version
                continue
            key, context = ahead
            self._wanted[counter.name] = key
            if before.get(counter.name) == key:
                self._planned.add(key)
                self.busy = self._thread.submit(_prepare, counter.coordinator.scheme, context)
                return

    def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _prepare(scheme: Scheme, context: RoundContext) -> None:
    try:
        scheme.prepare(context)
    except PlanError as error:
        log.info("no plan: sites=%d alpha=%s error=%s", context.sites, context.alpha, error)
