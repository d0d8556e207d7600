"""The coordinator of one counter, sans-IO: every input returns the messages it causes (SPEC section 2).

Inputs are `join`, `leave`, `receive` and `silence`; the output of each is a list of (address, message). There is no
clock: whoever owns the sockets says when a site has fallen silent. There is no retry: everything is cumulative, so the
owner may send again at will.

The life of a round: the scheme opens it from a lower bound on the total, so one question to every site is enough; each
site adopts its pace and answers with its exact count; when the last has answered, the publisher takes over; when the
publisher says so, the next round opens. What a site counts meanwhile belongs to the round it is in.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from countless.core.answer import STATES, Answer
from countless.core.dice import Dice
from countless.core.ledger import Entry, Ledger
from countless.core.messages import Address, DownMessage, Repace, Report, Snapshot, StartRound, UpMessage
from countless.core.paces import Pace
from countless.core.publisher import Case, Consequence, Counting, Opening, Publisher, Scheme, Stay
from countless.errors import InvariantBroken, PlanError, ProtocolError

Outbox = list[tuple[Address, DownMessage]]


class Memory(NamedTuple):
    """All that must survive a restart: the owner saves it before it sends what an input returned."""

    round: int
    published: float
    departed: int
    known: tuple[tuple[Address, int], ...]


class Coordinator:
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
        self.counter = counter
        self.scheme = scheme
        self.alpha = alpha
        self.delta = delta
        self.round = memory.round if memory else 0
        self.published = memory.published if memory else 0
        self._dice = dice
        self._up = 1 + Fraction(repr(alpha))
        self._ledger = Ledger(memory.departed if memory else 0)
        self._silent: dict[Address, None] = {}
        self._pending = 0  # sites that owe a Snapshot
        self._joined = 0  # sites that came during this round
        self._planned_for = 0  # the total that the round's plan counts on
        for slot, address in enumerate(fleet):
            self._ledger.enter(address, 0, slot)
        for address, known in memory.known if memory else ():
            self._ledger.enter(address, known, -1)
        self._messages = self._ledger.known_total  # heard and sent; an earlier life is taken to have had one an event
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

    def _set(self, opening: Opening) -> None:
        self._opening = opening
        self._publisher: Publisher = opening.publisher

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
    def plan(self) -> object:
        """The numbers in force, for people."""
        return self._opening.plan

    @property
    def phase(self) -> int | None:
        """The phase of the round, where the answer moves in phases. Secret like the round: for operators."""
        return self._publisher.phase

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

    def pace_of(self, address: Address) -> Pace:
        """The pace of a site in the present round."""
        return self._publisher.pace(self._ledger[address].slot)

    # Inputs

    def prepare(self) -> None:
        """Let the scheme plan ahead. The owner calls this when no message waits: it may take a second."""
        self.scheme.prepare(self.outlook)

    @property
    def outlook(self) -> Case:
        """What the scheme would be asked now. An owner who plans ahead in another thread takes it there."""
        return self._case(self._opening)

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
        """A site spoke."""
        entry = self._ledger.entry_of(address)
        self._messages += 1
        if message.round != self.round:
            self._require_known_round(address, message)
            self._hear_from(entry)
            return self._from_the_past(entry, message)
        if type(message) is Report:
            return self._reported(entry, message)
        self._hear_from(entry)
        entry.told = True
        if entry.asked:
            return self._answered(entry, message.count)
        return self._answered_late(entry, message.count)

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

    def _hear_from(self, entry: Entry) -> None:
        if entry.silent:
            entry.silent = False
            del self._silent[entry.address]

    def _from_the_past(self, entry: Entry, message: UpMessage) -> Outbox:
        if entry.asked:  # its Snapshot will say more; until then this still says that it had come so far
            entry.known = max(entry.known, message.count)
        if entry.told or not entry.present:
            return []
        if entry.assumed or message.count >= entry.loud or self._affords_telling():
            return self._tell(entry)
        return self._overhear(entry, message.count)

    def _affords_telling(self) -> bool:
        # Two messages: the site may have to report at once. While others are still asked, nobody is told.
        budget = self._opening.budget
        return not self._pending and (budget is None or budget.allows(self._messages + 2, self._publisher.estimate))

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

    # Inside a round

    def _reported(self, entry: Entry, report: Report) -> Outbox:
        """Nearly every message is a report, and nearly every report has no consequences: this is the short way."""
        count, crossings = report.count, report.crossings
        news, before = crossings - entry.crossings, entry.known
        if news > 0 and (count < before or crossings > count - entry.base):
            self._require_possible(entry, report)
        if entry.silent:
            self._hear_from(entry)
        entry.told = True
        if news <= 0 or not entry.present:
            return []
        entry.crossings = crossings
        if count > before:
            entry.known = count
        if entry.asked or self._pending:  # it overtook Snapshots, perhaps its own: kept until the round begins
            return []
        return self._follow(entry, self._publisher.hear(entry, before, news))

    @staticmethod
    def _require_possible(entry: Entry, report: Report) -> None:
        # A site that was given another pace on the way may look at the same events twice.
        if entry.present and not (entry.asked or entry.repaced):
            raise ProtocolError(f"{entry.address} reports {report} after {entry}: more crossings than events")

    def _follow(self, entry: Entry, consequence: Consequence | None) -> Outbox:
        self._publish()
        if consequence is None:
            return []
        if consequence.over:
            return self._reconsider()
        if consequence.repace is None or not entry.present:
            return []
        entry.repaced = True
        return self._tell(entry)

    def _publish(self) -> None:
        # The truth never falls, so the largest estimate so far is at least as good as the last one.
        estimate = self._publisher.estimate
        if estimate > self.published:
            self.published = estimate

    # From one round to the next

    def _case(self, running: Opening | None, total: int | None = None) -> Case:
        counts = [entry.known for entry in self._ledger if entry.present]
        # As many as came during the last round may come again during the next: then that needs no other round.
        places = max(1, len(counts) + (2 * self._joined if self.round else 0))
        known = self._ledger.known_total
        if total is None:
            total = max(known, ceil(Fraction(self.published) / self._up))
        loud = self._publisher.loud
        unsure = sum(entry.present and not entry.is_certain(loud) for entry in self._ledger)
        facts = known, self.published, self._messages, unsure
        return Case(self.round + 1, places, total, self.alpha, self.delta, counts, running, *facts)

    def _ask_scheme(self, running: Opening | None, total: int | None = None) -> Opening | Stay:
        case = self._case(running, total)
        opening = self.scheme.open(case, self._dice.split("round", self.round + 1))
        if isinstance(opening, Opening):
            self._planned_for = case.total if opening.asks else case.known
        return opening

    def _fresh_opening(self, total: int | None = None) -> Opening:
        opening = self._ask_scheme(None, total)
        if isinstance(opening, Stay):
            raise InvariantBroken(f"scheme {self.scheme.name!r} wants to stay where nothing runs")
        return opening

    def _opening_for(self, newcomer: Entry) -> Opening:
        try:
            return self._fresh_opening()
        except PlanError:  # no plan for so many sites: it was never here
            self._ledger.forget(newcomer)
            self._joined -= 1
            raise

    def _reconsider(self) -> Outbox:
        """The publisher has come to its end: the next round, or more of the same."""
        opening = self._ask_scheme(self._opening)
        if isinstance(opening, Stay):
            self._publisher.until = opening.until
            return []
        return self._start(opening)

    def _start(self, opening: Opening) -> Outbox:
        ask, loud = opening.asks or self._pending > 0, self._publisher.loud
        self.round += 1
        self._joined = 0
        self._set(opening)
        self._ledger.settle()
        outbox: Outbox = []
        for slot, entry in enumerate(self._ledger):
            # A site whose count is known to the last event need not be asked, and need not even be told before it
            # next speaks: until then its old pace would make it speak at its very next event.
            sure = entry.is_certain(loud)
            if entry.told:
                entry.loud = loud
            entry.slot, entry.base, entry.crossings, entry.repaced = slot, entry.known, 0, False
            entry.assumed = entry.silent and not sure
            entry.told = not (sure or entry.silent)
            entry.asked = ask and entry.told
            if entry.told:
                outbox.append((entry.address, self._summons(entry)))
        self._pending = len(outbox) if ask else 0
        self._messages += len(outbox)
        return outbox if self._pending else outbox + self._begin()

    def _summons(self, entry: Entry) -> DownMessage:
        """What brings a site into the round: the question for its count, or the count it is taken to have."""
        pace = self._publisher.pace(entry.slot)
        if entry.asked:
            return StartRound(self.counter, self.round, pace)
        return Repace(self.counter, self.round, pace, entry.base)

    def _answered(self, entry: Entry, count: int) -> Outbox:
        entry.asked = False
        entry.base, entry.known = count, max(entry.known, count)
        self._pending -= 1
        return [] if self._pending else self._begin()

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

    def _begin(self) -> Outbox:
        entries = list(self._ledger)
        if self._ledger.departed + sum(entry.base for entry in entries) < self._planned_for:
            # Silent sites count for less than what had been published of them: plan for what is known, and ask again.
            return self._start(self._fresh_opening(self._ledger.known_total))
        self._publisher.open(entries, self._ledger.departed)
        self._publish()
        outbox: Outbox = []
        for entry in entries:  # what happened while the others were still answering
            if entry.known > entry.base:
                number = self.round
                outbox += self._follow(entry, self._publisher.hear(entry, entry.base, entry.crossings))
                if self.round != number:
                    break
        return outbox

    def _free_slot(self) -> int:
        """A place for one more site, or -1 if the round has none left."""
        used = len(self._ledger)
        return used if self._opening.slots is None or used < self._opening.slots else -1

    def _come_back(self, entry: Entry, hello: Snapshot) -> Outbox:
        self._hear_from(entry)
        if not entry.present or (hello.round == self.round and not entry.repaced):
            return []
        if entry.asked:
            return [(entry.address, StartRound(self.counter, self.round, self._publisher.pace(entry.slot)))]
        return self._tell(entry)

    def _tell(self, entry: Entry) -> Outbox:
        """Give a site the pace in force, from the base it was given; after a change of pace, from what is known.

        An old hello that comes late must not make a site look at the same events twice: told from the same base again,
        it takes no notice.
        """
        entry.told = True
        self._messages += 1
        pace = self._publisher.pace(entry.slot)
        since = entry.known if entry.repaced else entry.base
        return [(entry.address, Repace(self.counter, self.round, pace, since))]
