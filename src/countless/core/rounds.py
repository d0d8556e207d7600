"""One round after the other: how it is opened, when it begins, and what follows from what is heard in it.

The life of a round: the scheme opens it from a lower bound on the total, so one question to every site is enough; each
site adopts its pace and answers with its exact count; when the last has answered, the publisher takes over; when the
publisher says so, the next round opens. What a site counts meanwhile belongs to the round it is in.

Nothing here knows how sites come, speak and go: that is `Coordinator`.
"""

from fractions import Fraction
from math import ceil

from countless.core.estimator import Effect, Estimator, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.ledger import Entry, Ledger, certain
from countless.core.messages import DownMessage, SetTrigger, SiteId, StartRound
from countless.core.random_source import RandomSource
from countless.core.triggers import Trigger
from countless.errors import InvariantBroken

Outbox = list[tuple[SiteId, DownMessage]]


class Rounds:
    """The rounds of one counter, and the estimate that they publish. Before the first, `_set` an opening."""

    def __init__(
        self,
        counter: str,
        scheme: Scheme,
        rng: RandomSource,
        *,
        alpha: float,
        delta: float,
        ledger: Ledger,
        number: int,
        published: float,
    ) -> None:
        self.counter = counter
        self.scheme = scheme
        self.alpha = alpha
        self.delta = delta
        self.round = number
        self.published = published
        self._rng = rng
        self._up = 1 + Fraction(repr(alpha))
        self._ledger = ledger
        self._pending = 0  # sites that owe a Snapshot
        self._joined = 0  # sites that came during this round
        self._planned_for = 0  # the total that the round's plan counts on

    def _set(self, setup: RoundSetup) -> None:
        self._setup = setup
        self._estimator: Estimator = setup.estimator

    @property
    def plan(self) -> object:
        """The numbers in force, for people."""
        return self._setup.plan

    @property
    def phase(self) -> int | None:
        """The phase of the round, where the answer moves in phases. Secret like the round: for operators."""
        return self._estimator.phase

    def trigger_of(self, site_id: SiteId) -> Trigger:
        """The pace of a site in the present round."""
        return self._estimator.trigger(self._ledger[site_id].slot)

    def prepare(self) -> None:
        """Let the scheme plan ahead. The owner calls this when no message waits: it may take a second."""
        self.scheme.prepare(self.next_context)

    @property
    def next_context(self) -> RoundContext:
        """What the scheme would be asked now. An owner who plans ahead in another thread takes it there."""
        return self._context(self._setup)

    # What the scheme is asked

    def _context(self, running: RoundSetup | None, total: int | None = None) -> RoundContext:
        present = [entry for entry in self._ledger if entry.present]
        # As many as came during the last round may come again during the next: then that needs no other round.
        places = max(1, len(present) + (2 * self._joined if self.round else 0))
        counts = [entry.reported for entry in present]
        if total is None:
            total = max(self._ledger.known_total, ceil(Fraction(self.published) / self._up))
        inexact = len(present) - sum(certain(present, self._estimator.exact_below))
        return RoundContext(self.round + 1, places, total, self.alpha, self.delta, counts, running, inexact)

    def _ask_scheme(self, running: RoundSetup | None, total: int | None = None) -> RoundSetup | KeepRound:
        context = self._context(running, total)
        setup = self.scheme.open(context, self._rng.spawn("round", self.round + 1))
        if isinstance(setup, RoundSetup):
            self._planned_for = context.total
        return setup

    def _fresh_opening(self, total: int | None = None) -> RoundSetup:
        setup = self._ask_scheme(None, total)
        if isinstance(setup, KeepRound):
            raise InvariantBroken(f"scheme {self.scheme.name!r} wants to stay where nothing runs")
        return setup

    # From one round to the next

    def _reconsider(self) -> Outbox:
        """The publisher has come to its end: the next round, or more of the same."""
        setup = self._ask_scheme(self._setup)
        if isinstance(setup, KeepRound):
            self._estimator.reconsider_at = setup.reconsider_at
            return []
        return self._start(setup)

    def _start(self, setup: RoundSetup) -> Outbox:
        exact_below = self._estimator.exact_below
        self.round += 1
        self._joined = 0
        self._set(setup)
        self._ledger.settle()
        counter, number, trigger_of = self.counter, self.round, setup.estimator.trigger
        new = tuple.__new__  # makes a message in half the time of the constructor that Python wrote for it
        outbox: Outbox = []
        trigger: Trigger | None = None
        for slot, (entry, sure) in enumerate(zip(self._ledger, certain(self._ledger, exact_below), strict=True)):
            # A site whose count is known exactly gets no message: its old trigger makes it report its next event, and
            # it is sent the new trigger then.
            entry.slot = slot
            entry.round_start = entry.reported
            entry.crossings = 0
            entry.trigger_changed = False
            entry.assumed = entry.silent and not sure
            entry.told = entry.asked = not (sure or entry.silent)
            if entry.asked:
                own = trigger_of(slot)
                if own is not trigger:  # where all sites have the same pace they get the same message
                    trigger, start = own, new(StartRound, (counter, number, own))
                outbox.append((entry.site_id, start))
        self._pending = len(outbox)
        return outbox or self._begin()

    def _answered(self, entry: Entry, count: int) -> Outbox:
        entry.asked = False
        entry.round_start = count
        if count > entry.reported:
            entry.reported = count
        self._pending -= 1
        return [] if self._pending else self._begin()

    def _begin(self) -> Outbox:
        entries = list(self._ledger)
        if self._ledger.departed + sum(entry.round_start for entry in entries) < self._planned_for:
            # Silent sites count for less than what had been published of them: plan for what is known, and ask again.
            return self._start(self._fresh_opening(self._ledger.known_total))
        self._estimator.open(entries, self._ledger.departed)
        self._publish()
        outbox: Outbox = []
        for entry in entries:  # what happened while the others were still answering
            if entry.reported > entry.round_start:
                number = self.round
                outbox += self._follow(entry, self._estimator.on_report(entry, entry.round_start, entry.crossings))
                if self.round != number:
                    break
        return outbox

    # Inside a round

    def _follow(self, entry: Entry, effect: Effect | None) -> Outbox:
        self._publish()
        if effect is None:
            return []
        if effect.over:
            return self._reconsider()
        if effect.repace is None or not entry.present:
            return []
        entry.trigger_changed = True
        return self._tell(entry)

    def _publish(self) -> None:
        # The truth never falls, so the largest estimate so far is at least as good as the last one.
        estimate = self._estimator.estimate
        if estimate > self.published:
            self.published = estimate

    def _tell(self, entry: Entry) -> Outbox:
        """Give a site the pace in force, from the base it was given; after a change of pace, from what is known.

        An old hello that comes late must not make a site look at the same events twice: told from the same base again,
        it takes no notice.
        """
        entry.told = True
        trigger = self._estimator.trigger(entry.slot)
        from_count = entry.reported if entry.trigger_changed else entry.round_start
        return [(entry.site_id, SetTrigger(self.counter, self.round, trigger, from_count))]
