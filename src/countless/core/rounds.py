"""The rounds of one counter: how a round starts, becomes active and ends.

1. The scheme opens the round with a setup, from a lower bound on the total.
2. Each site whose count is not known exactly is sent `StartRound`. It adopts its trigger and replies with its count.
3. When the last snapshot has arrived, the round is active: the estimator starts from the exact total. What sites report
   before that is kept in the ledger and given to the estimator then.
4. When the estimator ends the round, the scheme opens the next one or keeps this one.

`Coordinator` decides which messages and sites are accepted; this class decides what follows from them.
"""

from fractions import Fraction
from math import ceil, log

from countless.core.answer import bounds
from countless.core.estimator import Effect, ExactSum, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.floor import open_below_floor
from countless.core.ledger import Entry, Ledger
from countless.core.messages import DownMessage, Outbox, SetTrigger, SiteId, Snapshot, StartRound
from countless.core.parameters import exact_fraction
from countless.core.random_source import RandomSource
from countless.core.site_states import (
    AWAITING_SNAPSHOT,
    CURRENT,
    DEPARTED,
    LEFT,
    NEW_TRIGGER,
    NOT_SENT,
    REPORT,
    SNAPSHOT,
    STARTED_EXACT,
    STARTED_REACHABLE,
    STARTED_UNREACHABLE,
    TIMED_OUT,
    TRIGGER_SENT,
    UNREACHABLE,
)
from countless.errors import InvariantBroken, PlanError


class Rounds:
    """The present round and the published estimate."""

    def __init__(
        self,
        counter: str,
        scheme: Scheme,
        rng: RandomSource,
        ledger: Ledger,
        *,
        alpha: float,
        delta: float,
        floor: int = 0,
        expected_sites: int = 0,
        number: int = 0,
        published: float = 0,
    ) -> None:
        self.scheme = scheme
        self.alpha = alpha
        self.delta = delta
        self.floor = floor  # the error is at most alpha * max(total, floor)
        self.number = number
        self.published = published
        self.setup = RoundSetup(scheme.name, ExactSum())
        self.awaited = sum(entry.round_state is AWAITING_SNAPSHOT for entry in ledger.values())  # snapshots
        self.joined = 0  # sites that joined since the scheme was last asked, without those that were expected
        self.planned_total = 0  # the lower bound on the total from which the scheme opened this round
        self._asked_at = 0  # the total when the scheme was last asked
        self._counter = counter
        self._rng = rng
        self._ledger = ledger
        self._expected_sites = expected_sites

    @property
    def known(self) -> tuple[float, float] | None:
        """The least and the largest total that the reports allow; None: that is a secret, or snapshots are awaited."""
        ledger = self._ledger
        if not ledger.present:  # every site has left with its exact count, which is no secret
            total = ledger.departed + ledger.left
            return total, total
        if self.awaited:
            return None
        known = self.setup.estimator.known
        if known is None or not ledger.unreachable:
            return known
        # What unreachable sites have counted since is not known. What was published before was right.
        lower, _ = bounds(self.published, self.alpha, self.floor)
        return max(known[0], lower), max(known[1], self.published)

    def start_first(self) -> None:
        """Start round 0 with sites that have counted nothing: no message is needed."""
        self.setup = self._open_round()
        self._activate()

    def recover(self) -> Outbox:
        """Continue from a saved state.

        Without sites no round starts: the state may be an older copy, and the first site that joins names the last
        round.
        """
        if self._ledger:
            return self._start(self._open_round())
        self.setup = RoundSetup(self.scheme.name, ExactSum(reconsider_at=0))
        return self._activate()

    def _start_above(self, number: int) -> Outbox:
        """Start a round that a site in round `number` cannot have been in."""
        before, self.number = self.number, max(self.number, number)
        try:
            setup = self._open_round()
        except PlanError:
            self.number = before
            raise
        return self._start(setup)

    # From one round to the next

    def context(self, running: RoundSetup | None, total: int | None = None) -> RoundContext:
        """The context from which the scheme opens the next round; `running` is the round that it may keep."""
        present = [entry for entry in self._ledger.values() if entry.presence is not DEPARTED]
        sites = max(1, self._expected_sites, len(present))
        if total is None:
            total = max(self._ledger.known_total, self._least_total)
        counts = [entry.reported for entry in present]
        exact_below_of = self.setup.estimator.exact_below_of
        inexact = sum(not entry.known_exactly(exact_below_of(entry)) for entry in present)
        joined = self.joined if self.number or self._asked_at else 0  # at first all sites join
        efolds = log(max(1, total) / max(1, self._asked_at))
        return RoundContext(
            self.number + 1,
            sites,
            total,
            self.alpha,
            self.delta,
            counts,
            running,
            inexact,
            # Slots for sites that join spare another round: as many as in an e-fold, or twice as many as have joined.
            # How many join is known sooner: where slots run out, often in a hundredth of an e-fold.
            reserve=ceil(joined / max(0.5, efolds)),
            joins_per_efold=joined / max(0.01, efolds),
        )

    @property
    def _least_total(self) -> int:
        """The least total that the published estimate allows."""
        published, alpha = Fraction(self.published), exact_fraction(self.alpha)
        least = published / (1 + alpha)
        return ceil(min(least, published - alpha * self.floor) if self.floor else least)

    def _ask_scheme(self, running: RoundSetup | None, total: int | None = None) -> RoundSetup | KeepRound:
        context = self.context(running, total)
        setup = (not self.scheme.exact and open_below_floor(context, self.floor)) or self.scheme.open_round(
            context, self._rng.spawn("round", self.number + 1)
        )
        self._asked_at = context.total
        if isinstance(setup, RoundSetup):
            self.planned_total = context.total
        return setup

    def _open_round(self, total: int | None = None) -> RoundSetup:
        setup = self._ask_scheme(None, total)
        if isinstance(setup, KeepRound):
            raise InvariantBroken(f"scheme {self.scheme.name!r} keeps a round where none is running")
        return setup

    def _end_round(self) -> Outbox:
        setup = self._ask_scheme(self.setup)
        if isinstance(setup, KeepRound):
            self.setup.estimator.reconsider_at = setup.reconsider_at
            self.joined = 0
            return []
        return self._start(setup)

    def _start(self, setup: RoundSetup) -> Outbox:
        last = self.setup.estimator
        self.number += 1
        self.joined = 0
        self.setup = setup
        self._ledger.fold_departed()
        outbox: Outbox = []
        for slot, entry in enumerate(self._ledger.values()):
            if entry.known_exactly(last.exact_below_of(entry)):
                # It is sent nothing: its present trigger reports its next event, and the new one is sent then.
                if entry.trigger_sent:
                    entry.exact_below = last.exact_below_of(entry)
                entry.apply(STARTED_EXACT)
            elif entry.presence is UNREACHABLE:
                entry.apply(STARTED_UNREACHABLE)
            else:
                if entry.round_state is not AWAITING_SNAPSHOT:
                    entry.asked_in = self.number
                entry.apply(STARTED_REACHABLE)
                outbox.append(self._request_snapshot(slot, entry))
            entry.slot, entry.round_start, entry.crossings = slot, entry.reported, 0
        self.awaited = len(outbox)
        return outbox or self._activate()

    def _set_start(self, entry: Entry, count: int) -> Outbox:
        """The start of an awaited site is known, or will not be waited for."""
        entry.round_start = count
        if count > entry.reported:
            entry.reported = count
        self.awaited -= 1
        return [] if self.awaited else self._activate()

    def _activate(self) -> Outbox:
        entries = list(self._ledger.values())
        total = self._ledger.departed + sum(entry.round_start for entry in entries)
        if total < self.planned_total:
            # The assumed starts of unreachable sites are too low for the plan: make one for what is known.
            return self._start(self._open_round(self._ledger.known_total))
        self._asked_at = max(self._asked_at, total)
        self.setup.estimator.start(entries, self._ledger.departed)
        self._publish()
        outbox: Outbox = []
        number = self.number
        for entry in entries:  # reports that arrived while snapshots were awaited
            if entry.reported > entry.round_start:
                effect = self.setup.estimator.on_report(entry, entry.round_start, entry.crossings)
                outbox += self._apply(entry, effect)
                if self.number != number:
                    break
        return outbox

    # Within a round

    def on_report(self, entry: Entry, count: int, crossings: int) -> Outbox:
        """A report of this round, which the caller found plausible."""
        new_crossings, before = crossings - entry.crossings, entry.reported
        if entry.round_state is not CURRENT:
            entry.apply(REPORT)
        if new_crossings <= 0:
            return []
        entry.crossings = crossings
        if count > before:
            entry.reported = count
        if self.awaited:
            return []
        estimator = self.setup.estimator
        effect = estimator.on_report(entry, before, new_crossings)
        if effect is not None:
            return self._apply(entry, effect)
        if estimator.estimate > self.published:  # as `_publish`: the site is present
            self.published = estimator.estimate
        return []

    def on_snapshot(self, entry: Entry, count: int) -> Outbox:
        entry.joined = True
        if entry.round_state is AWAITING_SNAPSHOT:
            entry.apply(SNAPSHOT)
            return self._set_start(entry, count)
        assumed, gain, before = entry.start_assumed, count - entry.round_start, entry.reported
        entry.apply(SNAPSHOT)
        if not assumed or gain <= 0:  # without a gain, the start was assumed from a report that overtook this snapshot
            return []
        entry.round_start, entry.reported = count, max(before, count)
        if entry.presence is DEPARTED:
            self._ledger.left += entry.reported - before
        if self.awaited:
            return []
        return self._apply(entry, self.setup.estimator.on_late_start(entry, before, gain))

    def on_stale_message(self, entry: Entry, count: int) -> Outbox:
        """A message of an earlier round."""
        if entry.round_state is AWAITING_SNAPSHOT:
            entry.reported = max(entry.reported, count)
        if entry.trigger_sent or entry.presence is DEPARTED:
            return []
        estimator = self.setup.estimator
        if not (entry.round_state is NOT_SENT and estimator.stays_exact(entry.slot) and count < entry.exact_below):
            return self._send_trigger(entry)
        before, entry.reported = entry.reported, max(entry.reported, count)
        return [] if self.awaited else self._apply(entry, estimator.on_report(entry, before, 0))

    def on_timeout(self, entry: Entry) -> Outbox:
        """The site is unreachable: what it has reported is assumed to be its start."""
        state = entry.round_state
        entry.apply(TIMED_OUT)
        return self._set_start(entry, entry.reported) if state is AWAITING_SNAPSHOT else []

    # Sites that join and leave

    def join(self, site_id: SiteId, hello: Snapshot) -> Outbox:
        is_restored = hello.round >= max(self.number, 1)
        entry = self._ledger.add(site_id, hello.count, AWAITING_SNAPSHOT if is_restored else CURRENT)
        unexpected = int(self._ledger.present > self._expected_sites)
        self.joined += unexpected
        if is_restored or (self.setup.slots is not None and entry.slot >= self.setup.slots):
            try:
                return self._start_above(hello.round)
            except PlanError:  # there is no plan for so many sites
                self._ledger.discard(entry)
                self.joined -= unexpected
                raise
        if hello.round == self.number:  # only in round 0: it has a trigger of this round already, its own
            entry.apply(NEW_TRIGGER)
        if not self.awaited:
            self.setup.estimator.join(entry)
            self._publish()
        return self._send_trigger(entry)

    def rejoin(self, entry: Entry, number: int) -> Outbox:
        """A connection is back, to a site that is in round `number`: send what may have been lost with the old one."""
        is_restored = number >= self.number + entry.joined
        entry.joined = True
        if is_restored:
            return self._start_above(number)
        if number == self.number and not entry.trigger_changed:
            return []
        if entry.round_state is AWAITING_SNAPSHOT:
            return [self._request_snapshot(entry.slot, entry)]
        if entry.trigger_changed and not self.awaited:
            self.setup.estimator.on_resend(entry)
        return self._send_trigger(entry)

    def leave(self, entry: Entry, final: Snapshot) -> Outbox:
        state, before = entry.round_state, entry.reported
        entry.apply(LEFT)
        entry.reported = max(before, final.count)
        self._ledger.left += entry.reported - before
        if state is AWAITING_SNAPSHOT:
            return self._set_start(entry, entry.reported)
        estimator, gain = self.setup.estimator, entry.reported - entry.round_start
        late = final.round < self.number  # it never adopted this round's trigger: its gain is exact
        if late:
            entry.round_start = entry.reported
        if self.awaited:
            return []
        effect = None
        if late:
            effect, before = estimator.on_late_start(entry, before, gain), entry.reported
        return self._apply(entry, estimator.leave(entry, before) or effect)

    # What follows

    def _apply(self, entry: Entry, effect: Effect | None) -> Outbox:
        self._publish()
        if effect is Effect.END_ROUND:
            return self._end_round()
        if effect is Effect.CHANGE_TRIGGER and entry.presence is not DEPARTED:
            entry.apply(NEW_TRIGGER)
            return self._send_trigger(entry)
        return []

    def _publish(self) -> None:
        # The total never falls, so the largest estimate so far is at least as good as the last one.
        estimate, ledger = self.setup.estimator.estimate, self._ledger
        if estimate > self.published:
            self.published = estimate
        if not ledger.present:
            self.published = max(self.published, ledger.departed + ledger.left)

    def _send_trigger(self, entry: Entry) -> Outbox:
        # Always from the same start, so a site that has the trigger ignores it; after a change, from what is known.
        entry.apply(TRIGGER_SENT)
        from_count = entry.reported if entry.trigger_changed else entry.round_start
        trigger = self.setup.estimator.trigger(entry.slot)
        return [(entry.site_id, SetTrigger(self._counter, self.number, trigger, from_count))]

    def _request_snapshot(self, slot: int, entry: Entry) -> tuple[SiteId, DownMessage]:
        return entry.site_id, StartRound(self._counter, self.number, self.setup.estimator.trigger(slot))
