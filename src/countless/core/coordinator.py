"""The coordinator of one counter, sans-IO: every input returns the messages it causes (SPEC section 2).

Inputs are `join`, `leave`, `receive` and `silence`; the output of each is a list of (address, message). There is no
clock: whoever owns the sockets says when a site has fallen silent. There is no retry: everything is cumulative, so the
owner may send again at will.

Here is how sites come, speak, fall silent and go. How one round follows the other is in `rounds.py`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from countless.core.answer import STATE_TABLE, Answer
from countless.core.estimator import ExactSum, RoundSetup, Scheme
from countless.core.ledger import Entry, Ledger
from countless.core.messages import Report, SiteId, Snapshot, StartRound, UpMessage
from countless.core.random_source import RandomSource
from countless.core.rounds import Outbox, Rounds
from countless.errors import PlanError, ProtocolError

__all__ = ["Coordinator", "Outbox", "PersistentState"]


class PersistentState(NamedTuple):
    """All that must survive a restart: the owner saves it before it sends what an input returned."""

    round: int
    published: float
    departed: int
    known: tuple[tuple[SiteId, int], ...]


class Coordinator(Rounds):
    """Tracks one total.

    `fleet` are the sites deployed together with the coordinator, at count 0: they start with `pace_of(address)` as part
    of their configuration and need no message. Everybody else joins. With a `memory` the coordinator goes on where
    an earlier one stopped: call `wake()` once and deliver what it returns.
    """

    def __init__(
        self,
        counter: str,
        scheme: Scheme,
        rng: RandomSource,
        *,
        alpha: float,
        delta: float,
        fleet: Iterable[SiteId] = (),
        saved_state: PersistentState | None = None,
    ) -> None:
        ledger = Ledger(saved_state.departed if saved_state else 0)
        for slot, site_id in enumerate(fleet):
            ledger.enter(site_id, 0, slot)
        for site_id, known in saved_state.known if saved_state else ():
            ledger.enter(site_id, known, -1)
        number, published = (saved_state.round, saved_state.published) if saved_state else (0, 0)
        super().__init__(
            counter, scheme, rng, alpha=alpha, delta=delta, ledger=ledger, number=number, published=published
        )
        self._silent: dict[SiteId, None] = {}
        self._set(RoundSetup(scheme.name, ExactSum()))
        if saved_state:
            for entry in self._ledger:  # nobody has answered yet
                entry.asked = True
                self._pending += 1
        else:
            self._set(self._fresh_opening())
            self._begin()

    def __repr__(self) -> str:
        return f"<Coordinator of {self.counter!r}: {self.answer}>"

    # What can be read

    @property
    def answer(self) -> Answer:
        """The total with its bounds and its state."""
        exact = self._estimator.exact and self._estimator.estimate >= self.published
        state = STATE_TABLE[self._pending == 0, not self._silent, exact]
        silent = tuple(site_id.site for site_id in self._silent)
        scheme, sites = self._setup.scheme, self._ledger.present
        return Answer(self.published, self.alpha, self.delta, state, self.round, sites, scheme, silent)

    @property
    def sites(self) -> int:
        """How many take part."""
        return self._ledger.present

    @property
    def known_total(self) -> int:
        """The sum of all counts heard so far: never more than the truth."""
        return self._ledger.known_total

    @property
    def saved_state(self) -> PersistentState:
        """What to save."""
        known = tuple((entry.site_id, entry.reported) for entry in self._ledger if entry.present)
        gone = sum(entry.reported for entry in self._ledger if not entry.present)
        return PersistentState(self.round, self.published, self._ledger.departed + gone, known)

    def reported_by(self, site_id: SiteId) -> int:
        """The largest count heard of a site: what an owner saves who does not want to write down all of `memory`."""
        return self._ledger[site_id].reported

    # Inputs

    def recover(self) -> Outbox:
        """After a restart: ask every known site. The answer is `learning` until all have answered."""
        return self._start(self._fresh_opening())

    def join(self, site_id: SiteId, hello: Snapshot) -> Outbox:
        """A site has come, or its connection has come back, with the exact count it has now."""
        self._require_known_round(site_id, hello)
        if site_id in self._ledger:
            return self._come_back(self._ledger[site_id], hello)
        self._joined += 1
        slot = self._free_slot()
        entry = self._ledger.enter(site_id, hello.count, slot)
        entry.trigger_changed = hello.round == self.round  # in round 0 the pace it came with is of this round too
        if slot < 0:
            return self._start(self._opening_for(entry))
        if not self._pending:  # else it is there when the round begins
            self._estimator.join(entry)
            self._publish()
        return self._tell(entry)

    def leave(self, site_id: SiteId, farewell: Snapshot) -> Outbox:
        """A site has gone for good, with an exact last count."""
        entry = self._ledger[site_id]
        self._require_known_round(site_id, farewell)
        if not entry.present:
            return []
        before, entry.reported = entry.reported, max(entry.reported, farewell.count)
        self._hear_from(entry)
        self._ledger.leave(entry)
        if entry.asked:
            return self._answered(entry, entry.reported)
        effect = None
        if farewell.round < self.round:  # it never had this round's pace: what it counted since its base is exact
            gain, entry.round_start = entry.reported - entry.round_start, entry.reported
            if not self._pending:
                effect, before = self._estimator.on_late_start(entry, before, gain), entry.reported
        return [] if self._pending else self._follow(entry, self._estimator.leave(entry, before) or effect)

    def receive(self, site_id: SiteId, message: UpMessage) -> Outbox:
        """A site spoke. Nearly always it is a report, and nearly always without consequences: this is the short way."""
        entry = self._ledger.entries[site_id]
        if isinstance(message, Snapshot):
            return self._receive_snapshot(entry, message)
        _, number, count, crossings = message
        if number != self.round:
            return self._from_the_past(entry, message)
        before = entry.reported
        news = crossings - entry.crossings
        if news > 0 and (count < before or crossings > count - entry.round_start):
            self._require_possible(entry, message)
        entry.told = True
        if entry.silent:
            self._hear_from(entry)
        if news <= 0 or not entry.present:
            return []
        entry.crossings = crossings
        if count > before:
            entry.reported = count
        if self._pending:  # it overtook Snapshots, perhaps its own: kept until the round begins
            return []
        estimator = self._estimator
        effect = estimator.on_report(entry, before, news)
        if effect is not None:
            return self._follow(entry, effect)
        if estimator.estimate > self.published:  # `_publish`, without the call
            self.published = estimator.estimate
        return []

    def _receive_snapshot(self, entry: Entry, message: Snapshot) -> Outbox:
        _, number, count = message
        if number != self.round:
            return self._from_the_past(entry, message)
        entry.told = True
        if entry.silent:
            self._hear_from(entry)
        if not entry.asked:
            return self._answered_late(entry, count)
        if self._pending == 1:
            return self._answered(entry, count)
        entry.asked, entry.round_start = False, count  # `_answered`, without the call
        if count > entry.reported:
            entry.reported = count
        self._pending -= 1
        return []

    def mark_unreachable(self, site_id: SiteId) -> Outbox:
        """A site has not been heard of for too long: stop waiting for it, keep its last known count, and say so."""
        entry = self._ledger[site_id]
        if not entry.present:
            return []
        entry.silent = True
        self._silent[site_id] = None
        if not entry.asked:
            return []
        entry.assumed, entry.told = True, False
        return self._answered(entry, entry.reported)

    def _require_known_round(self, site_id: SiteId, message: UpMessage) -> None:
        if message.round > self.round:
            raise ProtocolError(f"{site_id} speaks of round {message.round}; the present round is {self.round}")

    @staticmethod
    def _require_possible(entry: Entry, report: Report) -> None:
        # A site that was given another pace on the way may look at the same events twice.
        if entry.present and not (entry.asked or entry.trigger_changed):
            raise ProtocolError(f"{entry.site_id} reports {report} after {entry}: more crossings than events")

    def _hear_from(self, entry: Entry) -> None:
        if entry.silent:
            entry.silent = False
            del self._silent[entry.site_id]

    # Sites that come

    def _free_slot(self) -> int:
        """A place for one more site, or -1 if the round has none left."""
        used = len(self._ledger)
        return used if self._setup.slots is None or used < self._setup.slots else -1

    def _opening_for(self, newcomer: Entry) -> RoundSetup:
        try:
            return self._fresh_opening()
        except PlanError:  # no plan for so many sites: it was never here
            self._ledger.forget(newcomer)
            self._joined -= 1
            raise

    def _come_back(self, entry: Entry, hello: Snapshot) -> Outbox:
        self._hear_from(entry)
        if not entry.present or (hello.round == self.round and not entry.trigger_changed):
            return []
        if entry.asked:
            return [(entry.site_id, StartRound(self.counter, self.round, self._estimator.trigger(entry.slot)))]
        return self._tell(entry)

    # Sites that did not know of the round

    def _from_the_past(self, entry: Entry, message: UpMessage) -> Outbox:
        self._require_known_round(entry.site_id, message)
        self._hear_from(entry)
        if entry.asked:  # its Snapshot will say more; until then this still says that it had come so far
            entry.reported = max(entry.reported, message.count)
        return self._tell(entry) if entry.present and not entry.told else []

    def _answered_late(self, entry: Entry, count: int) -> Outbox:
        """The site was silent when the round opened, and its count was taken to be what was known of it."""
        if not entry.assumed:
            return []
        entry.assumed = False
        if count <= entry.round_start:  # a report was faster, and the site's base was taken from that
            return []
        gain, before = count - entry.round_start, entry.reported
        entry.round_start, entry.reported = count, max(entry.reported, count)
        return [] if self._pending else self._follow(entry, self._estimator.on_late_start(entry, before, gain))
