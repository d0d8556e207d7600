"""The coordinator of one counter, without I/O: every input returns the messages it causes.

The inputs are `join`, `leave` and those of a `Machine`. The owner of the sockets delivers the messages and decides when
a site has timed out: there is no clock here. There is no retry either: counts are cumulative, so the owner may send a
message again at any time.

This class decides which sites and messages are accepted. What follows from them in the present round is in `rounds.py`.
"""

from collections.abc import Iterable
from copy import copy
from typing import NamedTuple

from countless.core.answer import STATE_TABLE, Answer
from countless.core.estimator import Estimator, RoundContext, Scheme
from countless.core.ledger import Entry, Ledger
from countless.core.messages import Outbox, SiteId, Snapshot, UpMessage
from countless.core.parameters import require_restored_round
from countless.core.random_source import RandomSource
from countless.core.rounds import Rounds
from countless.core.site_states import AWAITING_SNAPSHOT, DEPARTED, LEFT, MESSAGE, TIMED_OUT, UNREACHABLE
from countless.core.triggers import Trigger
from countless.errors import ProtocolError


class PersistentCounter(NamedTuple):
    """All that must survive a restart. The owner saves it before it sends what an input returned."""

    round: int
    published: float
    departed: int
    known: tuple[tuple[SiteId, int], ...]


class DebugState(NamedTuple):
    answer: Answer
    awaited: int
    joined: int
    planned_total: int
    departed: int
    entries: dict[SiteId, Entry]
    estimator: Estimator


class Coordinator:
    """Tracks one total.

    `fleet` are the sites deployed together with the coordinator. They start at count 0 with `trigger_of(site_id)` as
    part of their configuration and need no message; all other sites join. With a `saved_state` the coordinator
    continues where an earlier one stopped: call `recover()` once and deliver what it returns.

    The answer is within alpha * max(total, floor). Rounds have room for `expected_sites`, so that these may join one by
    one without new rounds.
    """

    def __init__(
        self,
        counter: str,
        scheme: Scheme,
        rng: RandomSource,
        *,
        alpha: float,
        delta: float,
        floor: int = 0,
        expected_sites: int = 0,
        fleet: Iterable[SiteId] = (),
        saved_state: PersistentCounter | None = None,
    ) -> None:
        self.counter = counter
        saved = saved_state or PersistentCounter(0, 0, 0, ())
        self._ledger = Ledger(saved.departed)
        for site_id in fleet:
            self._ledger.add(site_id, 0)
        for site_id, known in saved.known:
            self._ledger.add(site_id, known, AWAITING_SNAPSHOT).joined = False
        self._rounds = Rounds(
            counter,
            scheme,
            rng,
            self._ledger,
            alpha=alpha,
            delta=delta,
            floor=floor,
            expected_sites=expected_sites,
            number=saved.round,
            published=saved.published,
        )
        if saved_state is None:
            self._rounds.start_first()

    def __repr__(self) -> str:
        return f"<Coordinator of {self.counter!r}: {self.answer}>"

    # Reading

    @property
    def answer(self) -> Answer:
        """The published total with its bounds and its state."""
        rounds, known, unreachable = self._rounds, self._rounds.known, self._ledger.unreachable
        return Answer(
            rounds.published,
            rounds.alpha,
            rounds.delta,
            STATE_TABLE[rounds.awaited == 0, not unreachable, known is not None and known[0] == known[1]],
            rounds.number,
            self._ledger.present,
            rounds.setup.scheme,
            tuple(site_id.site for site_id in unreachable),
            rounds.floor,
            known,
        )

    @property
    def estimate(self) -> float:
        """That of `answer`, for callers that ask after every event."""
        published, known = self._rounds.published, self._rounds.known
        return published if known is None else min(max(published, known[0]), known[1])

    @property
    def published(self) -> float:
        """The largest estimate so far."""
        return self._rounds.published

    @property
    def round(self) -> int:
        return self._rounds.number

    @property
    def scheme(self) -> Scheme:
        return self._rounds.scheme

    @property
    def plan(self) -> object:
        """The numbers of the present round, for people."""
        return self._rounds.setup.plan

    @property
    def phase(self) -> int | None:
        """The phase of the round, where the answer moves in phases. Secret like the round: for operators."""
        return self._rounds.setup.estimator.phase

    @property
    def sites(self) -> int:
        """The number of sites that are present."""
        return self._ledger.present

    @property
    def known_total(self) -> int:
        """The sum of all counts received: never more than the true total."""
        return self._ledger.known_total

    @property
    def saved_state(self) -> PersistentCounter:
        present = [entry for entry in self._ledger.values() if entry.presence is not DEPARTED]
        known = tuple((entry.site_id, entry.reported) for entry in present)
        return PersistentCounter(self.round, self.published, self.departed, known)

    @property
    def departed(self) -> int:
        """The sum of the final counts of sites that have left."""
        return self._ledger.departed + self._ledger.left

    def reported_by(self, site_id: SiteId) -> int:
        """The largest count received from a site: for owners that save one site at a time, not all of `saved_state`."""
        return self._ledger[site_id].reported

    def awaited(self, site_id: SiteId) -> int | None:
        """The first round that a site was asked for a snapshot and has sent none since; None: none is awaited of it."""
        entry = self._ledger.get(site_id)
        return None if entry is None or entry.round_state is not AWAITING_SNAPSHOT else entry.asked_in

    def trigger_of(self, site_id: SiteId) -> Trigger:
        """The trigger of a site in the present round."""
        return self._rounds.setup.estimator.trigger(self._ledger[site_id].slot)

    def debug_state(self) -> DebugState:
        """A copy of everything that an input can change, for tests."""
        rounds, ledger = self._rounds, self._ledger
        entries = {entry.site_id: copy(entry) for entry in ledger.values()}
        estimator = rounds.setup.estimator
        return DebugState(
            self.answer, rounds.awaited, rounds.joined, rounds.planned_total, ledger.departed, entries, estimator
        )

    # Planning ahead

    @property
    def next_context(self) -> RoundContext:
        """The context of a round that would begin now, for an owner that plans ahead in another thread."""
        return self._rounds.context(self._rounds.setup)

    # Inputs

    def recover(self) -> Outbox:
        """After a restart, request a snapshot of every site. The answer is `learning` until all have arrived."""
        return self._rounds.recover()

    def join(self, site_id: SiteId, hello: Snapshot) -> Outbox:
        """A site with its exact count: a new one, or one whose connection is back.

        If it names a round that this coordinator cannot have sent it, the saved state was an older copy: a round with a
        higher number starts, so that no number is used twice.
        """
        require_restored_round(hello.round, self.round)
        if site_id not in self._ledger:
            return self._rounds.join(site_id, hello)
        entry = self._ledger[site_id]
        self._ledger.apply(entry, MESSAGE)
        return [] if entry.presence is DEPARTED else self._rounds.rejoin(entry, hello.round)

    def leave(self, site_id: SiteId, final: Snapshot) -> Outbox:
        """A site departs with its exact last count."""
        entry = self._ledger[site_id]
        self._require_known_round(site_id, final)
        if entry.presence is DEPARTED:
            return []
        self._ledger.apply(entry, LEFT)
        return self._rounds.leave(entry, final)

    def give_up(self, site_id: SiteId) -> Outbox:
        """A site has ended without leaving: it departs with the largest count received."""
        return self.leave(site_id, Snapshot(self.counter, self.round, self._ledger[site_id].reported))

    def receive(self, site_id: SiteId, message: UpMessage) -> Outbox:
        """A report or a snapshot."""
        entry, rounds = self._ledger[site_id], self._rounds
        if message.round != rounds.number:
            self._require_known_round(site_id, message)
            self._ledger.apply(entry, MESSAGE)
            return rounds.on_stale_message(entry, message.count)
        if isinstance(message, Snapshot):
            if entry.presence is UNREACHABLE:
                self._ledger.apply(entry, MESSAGE)
            return rounds.on_snapshot(entry, message.count)
        if entry.presence is DEPARTED:
            return []
        if not entry.is_plausible(message.count, message.crossings):
            raise ProtocolError(f"{message} of {site_id} has more crossings than events: {entry}")
        if entry.presence is UNREACHABLE:
            self._ledger.apply(entry, MESSAGE)
        return rounds.on_report(entry, message.count, message.crossings)

    def mark_unreachable(self, site_id: SiteId) -> Outbox:
        """A site has timed out: do not wait for it any longer, and use its last known count."""
        entry = self._ledger[site_id]
        self._ledger.apply(entry, TIMED_OUT)
        return [] if entry.presence is DEPARTED else self._rounds.on_timeout(entry)

    def _require_known_round(self, site_id: SiteId, message: UpMessage) -> None:
        if message.round > self.round:
            raise ProtocolError(f"{site_id} sent a message of round {message.round}; the present round is {self.round}")
