"""The coordinator of one counter, sans-IO: every input returns the messages it causes (SPEC section 2).

Inputs are `join`, `leave`, `receive` and `silence`; the output of each is a list of (address, message). There is no
clock: whoever owns the sockets says when a site has fallen silent. There is no retry: everything is cumulative, so the
owner may send again at will.

Here is how sites come, speak, fall silent and go. How one round follows the other is in `rounds.py`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from countless.core.answer import STATES, Answer
from countless.core.estimator import Counting, Opening, Scheme
from countless.core.ledger import Entry, Ledger
from countless.core.messages import Address, Report, Snapshot, StartRound, UpMessage
from countless.core.random_source import Dice
from countless.core.rounds import Outbox, Rounds
from countless.errors import PlanError, ProtocolError

__all__ = ["Coordinator", "Memory", "Outbox"]


class Memory(NamedTuple):
    """All that must survive a restart: the owner saves it before it sends what an input returned."""

    round: int
    published: float
    departed: int
    known: tuple[tuple[Address, int], ...]


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
        dice: Dice,
        *,
        alpha: float,
        delta: float,
        fleet: Iterable[Address] = (),
        memory: Memory | None = None,
    ) -> None:
        ledger = Ledger(memory.departed if memory else 0)
        for slot, address in enumerate(fleet):
            ledger.enter(address, 0, slot)
        for address, known in memory.known if memory else ():
            ledger.enter(address, known, -1)
        number, published = (memory.round, memory.published) if memory else (0, 0)
        super().__init__(
            counter, scheme, dice, alpha=alpha, delta=delta, ledger=ledger, number=number, published=published
        )
        self._silent: dict[Address, None] = {}
        self._set(Opening(scheme.name, Counting()))
        if memory:
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
        exact = self._publisher.exact and self._publisher.estimate >= self.published
        state = STATES[self._pending == 0, not self._silent, exact]
        silent = tuple(address.site for address in self._silent)
        scheme, sites = self._opening.scheme, self._ledger.present
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
    def memory(self) -> Memory:
        """What to save."""
        known = tuple((entry.address, entry.known) for entry in self._ledger if entry.present)
        gone = sum(entry.known for entry in self._ledger if not entry.present)
        return Memory(self.round, self.published, self._ledger.departed + gone, known)

    def known_of(self, address: Address) -> int:
        """The largest count heard of a site: what an owner saves who does not want to write down all of `memory`."""
        return self._ledger[address].known

    # Inputs

    def wake(self) -> Outbox:
        """After a restart: ask every known site. The answer is `learning` until all have answered."""
        return self._start(self._fresh_opening())

    def join(self, address: Address, hello: Snapshot) -> Outbox:
        """A site has come, or its connection has come back, with the exact count it has now."""
        self._require_known_round(address, hello)
        self._messages += 1
        if address in self._ledger:
            return self._come_back(self._ledger[address], hello)
        self._joined += 1
        slot = self._free_slot()
        entry = self._ledger.enter(address, hello.count, slot)
        entry.repaced = hello.round == self.round  # in round 0 the pace it came with is of this round too
        if slot < 0:
            return self._start(self._opening_for(entry))
        if not self._pending:  # else it is there when the round begins
            self._publisher.join(entry)
            self._publish()
        return self._tell(entry)

    def leave(self, address: Address, farewell: Snapshot) -> Outbox:
        """A site has gone for good, with an exact last count."""
        entry = self._ledger[address]
        self._require_known_round(address, farewell)
        self._messages += 1
        if not entry.present:
            return []
        before, entry.known = entry.known, max(entry.known, farewell.count)
        self._hear_from(entry)
        self._ledger.leave(entry)
        if entry.asked:
            return self._answered(entry, entry.known)
        consequence = None
        if farewell.round < self.round:  # it never had this round's pace: what it counted since its base is exact
            gain, entry.base = entry.known - entry.base, entry.known
            if not self._pending:
                consequence, before = self._publisher.late(entry, before, gain), entry.known
        return [] if self._pending else self._follow(entry, self._publisher.leave(entry, before) or consequence)

    def receive(self, address: Address, message: UpMessage) -> Outbox:
        """A site spoke. Nearly always it is a report, and nearly always without consequences: this is the short way."""
        entry = self._ledger.entries[address]
        self._messages += 1
        if isinstance(message, Snapshot):
            return self._receive_snapshot(entry, message)
        _, number, count, crossings = message
        if number != self.round:
            return self._from_the_past(entry, message)
        before = entry.known
        news = crossings - entry.crossings
        if news > 0 and (count < before or crossings > count - entry.base):
            self._require_possible(entry, message)
        entry.told = True
        if entry.silent:
            self._hear_from(entry)
        if news <= 0 or not entry.present:
            return []
        entry.crossings = crossings
        if count > before:
            entry.known = count
        if self._pending:  # it overtook Snapshots, perhaps its own: kept until the round begins
            return []
        publisher = self._publisher
        consequence = publisher.hear(entry, before, news)
        if consequence is not None:
            return self._follow(entry, consequence)
        if publisher.estimate > self.published:  # `_publish`, without the call
            self.published = publisher.estimate
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
        entry.asked, entry.base = False, count  # `_answered`, without the call
        if count > entry.known:
            entry.known = count
        self._pending -= 1
        return []

    def silence(self, address: Address) -> Outbox:
        """A site has not been heard of for too long: stop waiting for it, keep its last known count, and say so."""
        entry = self._ledger[address]
        if not entry.present:
            return []
        entry.silent = True
        self._silent[address] = None
        if not entry.asked:
            return []
        entry.assumed, entry.told = True, False
        return self._answered(entry, entry.known)

    def _require_known_round(self, address: Address, message: UpMessage) -> None:
        if message.round > self.round:
            raise ProtocolError(f"{address} speaks of round {message.round}; the present round is {self.round}")

    @staticmethod
    def _require_possible(entry: Entry, report: Report) -> None:
        # A site that was given another pace on the way may look at the same events twice.
        if entry.present and not (entry.asked or entry.repaced):
            raise ProtocolError(f"{entry.address} reports {report} after {entry}: more crossings than events")

    def _hear_from(self, entry: Entry) -> None:
        if entry.silent:
            entry.silent = False
            del self._silent[entry.address]

    # Sites that come

    def _free_slot(self) -> int:
        """A place for one more site, or -1 if the round has none left."""
        used = len(self._ledger)
        return used if self._opening.slots is None or used < self._opening.slots else -1

    def _opening_for(self, newcomer: Entry) -> Opening:
        try:
            return self._fresh_opening()
        except PlanError:  # no plan for so many sites: it was never here
            self._ledger.forget(newcomer)
            self._joined -= 1
            raise

    def _come_back(self, entry: Entry, hello: Snapshot) -> Outbox:
        self._hear_from(entry)
        if not entry.present or (hello.round == self.round and not entry.repaced):
            return []
        if entry.asked:
            return [(entry.address, StartRound(self.counter, self.round, self._publisher.pace(entry.slot)))]
        return self._tell(entry)

    # Sites that did not know of the round

    def _from_the_past(self, entry: Entry, message: UpMessage) -> Outbox:
        self._require_known_round(entry.address, message)
        self._hear_from(entry)
        if entry.asked:  # its Snapshot will say more; until then this still says that it had come so far
            entry.known = max(entry.known, message.count)
        if entry.told or not entry.present:
            return []
        if entry.assumed or message.count >= entry.loud or self._affords_telling():
            return self._tell(entry) + self._tell_waiting()
        self._waiting[entry] = None
        return self._overhear(entry, message.count)

    def _affords_telling(self) -> bool:
        # Two messages: the site may have to report at once. While others are still asked, nobody is told.
        budget = self._opening.budget
        return not self._pending and (budget is None or budget.allows(self._messages + 2, self._publisher.estimate))

    def _tell_waiting(self) -> Outbox:
        """Those who spoke when there was no money, as soon as there is: every event they report costs a message."""
        outbox: Outbox = []
        while self._waiting and self._affords_telling():
            entry, _ = self._waiting.popitem()
            if entry.present and not (entry.told or entry.silent):
                outbox += self._tell(entry)
        return outbox

    def _overhear(self, entry: Entry, count: int) -> Outbox:
        """A site that was not told of this round has counted: as before, its count is known to the last event."""
        gain, before = count - entry.base, entry.known
        if gain <= 0:
            return []
        entry.base = entry.known = count
        if self._pending:
            return []
        consequence = self._publisher.late(entry, before, gain)
        self._publish()
        return self._reconsider() if consequence is not None and consequence.over else []

    def _answered_late(self, entry: Entry, count: int) -> Outbox:
        """The site was silent when the round opened, and its count was taken to be what was known of it."""
        if not entry.assumed:
            return []
        entry.assumed = False
        if count <= entry.base:  # a report was faster, and the site's base was taken from that
            return []
        gain, before = count - entry.base, entry.known
        entry.base, entry.known = count, max(entry.known, count)
        return [] if self._pending else self._follow(entry, self._publisher.late(entry, before, gain))
