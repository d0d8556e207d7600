"""The planner: works out ahead of time, in a thread of its own, what `auto` will want when the next round opens."""

import logging
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from countless.core.estimator import RoundContext, Scheme
from countless.errors import PlanError
from countless.server.sessions.counter import Counter, PlanKey

log = logging.getLogger("countless.planner")


class Planner:
    """One plan at a time, for an outlook that has not changed since the last look: fleets come up site by site."""

    def __init__(self) -> None:
        self._planned: set[PlanKey] = set()
        self._outlooks: dict[str, PlanKey] = {}  # not planned yet, as of the last look
        self._thread = ThreadPoolExecutor(1, "countless-planner")
        self.busy: Future[None] = self._thread.submit(lambda: None)

    def maybe_plan(self, counters: Iterable[Counter]) -> None:
        """Now and then. Looking at a counter takes time for each of its sites, so at most once for each change."""
        if not self.busy.done():
            return
        before, self._outlooks = self._outlooks, {}
        for counter in counters:
            if counter.plan_version == counter.planned_for:
                continue
            ahead = counter.next_plan()
            if ahead is None or ahead[0] in self._planned:
                counter.planned_for = counter.plan_version
                continue
            self._outlooks[counter.name] = ahead[0]
            if before.get(counter.name) == ahead[0]:
                self._planned.add(ahead[0])
                self.busy = self._thread.submit(_prepare, counter.coordinator.scheme, ahead[1])
                return

    def stop(self) -> None:
        """No more plans."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _prepare(scheme: Scheme, context: RoundContext) -> None:
    try:
        scheme.prepare(context)
    except PlanError:
        log.info("no plan for %d sites at alpha %s: deterministic until there is one", context.sites, context.alpha)
