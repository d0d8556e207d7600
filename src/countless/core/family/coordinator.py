"""The coordinator of a family, without I/O: every input returns the messages it causes.

It knows, of each site, the largest count that was reported of each label, and `steps`: the highest steps that may be in
force at the site. Raised steps count when they are sent; lowered ones when a message of the site shows its round. So
what a site may hold back is known at every moment, whichever messages have arrived.

Steps are lowered when sites join beyond the slots of a round. Higher steps are sent only when no lowering is awaited.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from countless.core.answer import STATE_TABLE, State
from countless.core.family.answer import LabelCount, Top, interval, top_of
from countless.core.family.messages import (
    OVERFLOW,
    DownMessage,
    FamilyDebugState,
    FamilyEntry,
    LabelReport,
    Outbox,
    PersistentFamily,
    Resend,
    SavedMember,
    SetSteps,
    Steps,
    Totals,
    UpMessage,
)
from countless.core.messages import SiteId, SiteName
from countless.core.parameters import require_restored_round
from countless.errors import InvariantBroken, ProtocolError

MAX_LABELS = 1_000_000


class StepRule(Protocol):
    def steps(self, known: int, sites: int) -> Steps:
        """The steps of a round that starts at a known total."""

    def raise_at(self, steps: Steps, sites: int) -> int:
        """The known total at which the next round starts."""


class FamilyCoordinator:
    """Counts labels, each to within a share of the total of all labels.

    `fleet` are sites that start with the coordinator, and need not join. At most `cap` labels are known by name. After
    a restart, with `saved_state`, the state is `learning` until every site has joined again or is unreachable.
    """

    phase: None = None  # rounds have no phases
    _least_total: float = 0

    def __init__(
        self,
        family: str,
        rule: StepRule,
        *,
        expected_sites: int = 0,
        fleet: Iterable[SiteId] = (),
        cap: int = MAX_LABELS,
        saved_state: PersistentFamily | None = None,
    ) -> None:
        self.family = family
        self.cap = cap
        self.rule = rule
        self.round = 0
        self.steps = Steps()
        self.lost = 0  # sites that were given up: they may have counted events that they had not reported
        self._members = {site_id: FamilyEntry() for site_id in fleet}
        self._expected = expected_sites
        self._slots = max(1, expected_sites, len(self._members))
        self._total = 0
        self._counts: dict[str, int] = {}
        self._held_back = Steps(0, 0)  # the sums of `steps - 1`: what sites may not have reported
        self._departed: dict[SiteId, None] = {}
        self._unreachable: dict[SiteId, None] = {}
        self._awaiting: dict[SiteId, int] = {}  # sites whose Totals is awaited, with the first round that awaits it
        self._untold: dict[SiteId, None] = {}  # sites that were not sent the steps of this round
        if saved_state is not None:
            self._load(saved_state)
        self._raise_at = self.rule.raise_at(self.steps, self._slots)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.family!r}: {self.total()}, {len(self._counts):,} labels, {self.state}>"

    # Reading

    @property
    def state(self) -> State:
        return STATE_TABLE[not self._awaiting, not self._unreachable, self.is_exact]

    @property
    def is_exact(self) -> bool:
        return self._held_back == Steps(0, 0)

    @property
    def sites(self) -> int:
        return len(self._members)

    @property
    def site_ids(self) -> list[SiteId]:
        return list(self._members)

    @property
    def unreachable(self) -> tuple[SiteName, ...]:
        return tuple(site_id.site for site_id in self._unreachable)

    @property
    def labels(self) -> int:
        """The number of labels that are known by name."""
        return len(self._counts) - (OVERFLOW in self._counts)

    @property
    def known(self) -> MappingProxyType[str, int]:
        """The reported count of each label, in the order in which they became known. None is ever removed."""
        return MappingProxyType(self._counts)

    @property
    def held_back(self) -> Steps:
        """The most events, of one label and of all, that sites may have counted and not reported."""
        return self._held_back

    def answer(self, label: str) -> LabelCount:
        """The count of a label. Its events may be in the overflow, so the upper bound includes that."""
        overflow = 0 if label == OVERFLOW else self._counts.get(OVERFLOW, 0)
        return self._interval(label, self._counts.get(label, 0), self._held_back.label, overflow)

    def total(self) -> LabelCount:
        return self._interval(None, self._total, self._held_back.total, 0)

    def top(self, share: float) -> Top:
        """Every label that has this share of the total, and others that may have it."""
        unseen = self._interval(None, 0, self._held_back.label, self._counts.get(OVERFLOW, 0)).upper
        return top_of(share, self._counts, unseen, self.answer, self.total(), self.state)

    def _interval(self, label: str | None, known: int, held_back: int, overflow: int) -> LabelCount:
        return interval(label, known, held_back, overflow)

    def saved_member(self, site_id: SiteId) -> SavedMember | None:
        """None: the site is not, or not any more, a member. The counts are those of the member, not a copy."""
        member = self._members.get(site_id)
        return None if member is None else SavedMember(member.steps, member.total, member.counts)

    def members(self) -> Iterator[tuple[SiteId, SavedMember]]:
        return ((site_id, SavedMember(each.steps, each.total, each.counts)) for site_id, each in self._members.items())

    def awaited(self, site_id: SiteId) -> int | None:
        """The first round since which a Totals of a site is awaited; None: none is."""
        return self._awaiting.get(site_id)

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def saved_state(self) -> PersistentFamily:
        members = {site: SavedMember(each.steps, each.total, dict(each.counts)) for site, each in self._members.items()}
        departed = tuple(self._departed)
        return PersistentFamily(
            self.round, self.steps, self._slots, self._total, dict(self._counts), members, departed, self.lost
        )

    def _load(self, saved: PersistentFamily) -> None:
        self.round, self.steps, self._slots, self._total, counts, members, departed, self.lost = saved
        self._counts = dict(counts)
        self._departed = dict.fromkeys(departed)
        for site_id, each in members.items():
            self._members[site_id] = member = FamilyEntry(each.total, each.counts)
            self._set_steps(member, each.steps)
            self._awaiting[site_id] = self.round

    def debug_state(self) -> FamilyDebugState:
        """A copy of what the answers do not show, for tests."""
        return FamilyDebugState(
            {site_id: member.steps for site_id, member in self._members.items()},
            tuple(self._departed),
            tuple(self._awaiting),
            tuple(self._untold),
            tuple(self._unreachable),
            self._slots,
            self._raise_at,
        )

    def check(self) -> None:
        """Raise InvariantBroken unless the sums are right, and within the shares if every site has answered."""
        members = self._members.values()
        held_back = Steps(sum(each.steps.label - 1 for each in members), sum(each.steps.total - 1 for each in members))
        if held_back != self._held_back:
            raise InvariantBroken(f"sites may hold back {held_back}, not {self._held_back}")
        for member in members:
            if member.reported != sum(member.counts.values()):
                raise InvariantBroken(f"a site has reported {member.counts}, not {member.reported} events")
        if not self._awaiting and not self._unreachable:
            self._check_width()

    def _check_width(self) -> None:
        most = self.rule.steps(self._total, 1)
        if self._held_back.label >= most.label or self._held_back.total >= most.total:
            raise InvariantBroken(f"sites may hold back {self._held_back} at a known total of {self._total}")

    # Inputs

    def recover(self) -> Outbox:
        """Nothing is asked after a restart: each site sends a `Totals` when it joins again."""
        return []

    def join(self, site_id: SiteId, sync: Totals) -> Outbox:
        """A site that is new, or whose connection is."""
        self._require_possible(sync)
        require_restored_round(sync.round, self.round)
        if site_id in self._departed:
            return []
        is_new = site_id not in self._members
        member = self._members.setdefault(site_id, FamilyEntry())
        self._set_steps(member, member.steps.at_least(sync.steps))
        if self.is_foreign(sync):
            self._renumber(sync.round + 1)
        if is_new and len(self._members) > self._slots:
            self._make_room()
        self._untold[site_id] = None  # what was sent on the old connection may be lost
        asked_in = self._awaiting.pop(site_id, None)
        outbox = self._receive(site_id, member, sync)
        if asked_in is not None and site_id in self._awaiting:
            self._awaiting[site_id] = asked_in
        return outbox

    def is_foreign(self, sync: Totals) -> bool:
        """True if the round is not one of this coordinator: its state was restored from an older copy. A round of the
        same number may have had other steps.
        """
        return sync.round > self.round or (sync.round == self.round and sync.steps != self.steps)

    def receive(self, site_id: SiteId, message: UpMessage) -> Outbox:
        """A message of a site that has joined. Those of sites that left, or were given up, are ignored."""
        self._require_possible(message)
        if site_id in self._departed:
            return []
        if site_id not in self._members:
            raise ProtocolError(f"{site_id} sent {type(message).__name__} and has not joined family {self.family!r}")
        if message.round > self.round:
            raise ProtocolError(f"{site_id} sent a message of round {message.round}; the present one is {self.round}")
        return self._receive(site_id, self._members[site_id], message)

    def leave(self, site_id: SiteId, sync: Totals) -> Outbox:
        """A site has reported everything, and departs. If a report was lost it stays, and is asked for it again."""
        outbox = self.receive(site_id, sync)
        member = self._members.get(site_id)
        if member is not None and member.reported >= sync.reported:
            self._remove(site_id, member)
            outbox += self._proceed()
        return outbox

    def give_up(self, site_id: SiteId, lost: bool = True) -> Outbox:
        """A site ended without leaving. What it has reported stays in the counts.

        `lost`: the rest will not be reported.
        """
        if site_id not in self._departed:
            # it may have sent its join, and this was overtaken
            member = self._members.setdefault(site_id, FamilyEntry())
            self.lost += lost
            self._remove(site_id, member)
        return self._proceed()

    def mark_unreachable(self, site_id: SiteId) -> Outbox:
        """A site has timed out: do not wait for it. The answers miss what it has not delivered."""
        if site_id in self._members:
            self._unreachable[site_id] = None
            self._awaiting.pop(site_id, None)
            self._untold.pop(site_id, None)
        return self._proceed()

    def set_rule(self, rule: StepRule) -> Outbox:
        """Other steps from now on, such as those of a smaller epsilon."""
        self.rule = rule
        self._start_round(self._slots)
        return self._proceed()

    def absorb(self, counts: Mapping[str, int], total: int) -> None:
        """Events of sites that have departed, from elsewhere: of a window that is not kept any more."""
        self._merge(FamilyEntry(), counts.items())
        self._total += total

    def forget(self, site_id: SiteId) -> None:
        """Do not remember that a site has departed: the owner sees to it that nothing of it is received again."""
        self._departed.pop(site_id, None)

    def _receive(self, site_id: SiteId, member: FamilyEntry, message: UpMessage) -> Outbox:
        self._merge_total(member, message)
        if message.round == self.round:
            self._set_steps(member, self.steps)
            self._awaiting.pop(site_id, None)
            self._untold.pop(site_id, None)
        elif site_id in self._unreachable:
            self._untold[site_id] = None
        self._unreachable.pop(site_id, None)
        outbox: Outbox = []
        if isinstance(message, LabelReport):
            self._merge(member, message.counts)
        elif member.reported < message.reported:
            outbox.append((site_id, Resend(self.family)))
        return outbox + self._proceed()

    # What follows

    def _merge(self, member: FamilyEntry, counts: Iterable[tuple[str, int]]) -> None:
        for label, count in counts:
            gain = count - member.counts.get(label, 0)
            if gain > 0:
                home = label if label in self._counts or self.labels < self.cap else OVERFLOW
                self._counts[home] = self._counts.get(home, 0) + gain
                member.counts[label] = count
                member.reported += gain

    def _merge_total(self, member: FamilyEntry, message: UpMessage) -> None:
        gain = message.total - member.total
        if gain > 0:
            member.total += gain
            self._total += gain

    @property
    def _known_total(self) -> int:
        """A lower bound on the total, which decides on rounds."""
        return self._total

    def _make_room(self) -> None:
        """A site has joined beyond the slots: lower the steps, also for a quarter more sites that may come."""
        self._start_round(len(self._members) * 5 // 4)

    def _start_round(self, slots: int) -> None:
        steps = self.rule.steps(self._known_total, slots)
        self._slots = slots
        self._raise_at = max(self.rule.raise_at(steps, slots), self._known_total + 1)
        if steps != self.steps:
            self.steps = steps
            self._renumber(self.round + 1)

    def _renumber(self, number: int) -> None:
        self.round = number
        self._untold = {site_id: None for site_id in self._members if site_id not in self._unreachable}

    def _proceed(self) -> Outbox:
        if self._known_total >= self._raise_at and not self._awaiting:
            sites = max(1, self._expected, len(self._members))
            self._start_round(max(sites, min(self._slots, sites * 5 // 4)))
        if not self._untold:
            return []
        # A site that owes the Totals of an earlier round is asked for that of this one, which is all that counts now.
        asked = [
            each
            for each in self._untold
            if each in self._awaiting or self._members[each].steps.at_least(self.steps) != self.steps
        ]
        for each in asked:
            self._awaiting.setdefault(each, self.round)
        if self._awaiting:
            return [self._tell(site_id, confirm=True) for site_id in asked]
        return [self._tell(site_id) for site_id in list(self._untold) if self._may_tell()]

    def _may_tell(self) -> bool:
        return True

    def _tell(self, site_id: SiteId, confirm: bool = False) -> tuple[SiteId, DownMessage]:
        del self._untold[site_id]
        member = self._members[site_id]
        self._set_steps(member, member.steps.at_least(self.steps))
        return site_id, SetSteps(self.family, self.round, self.steps, confirm)

    def _set_steps(self, member: FamilyEntry, steps: Steps) -> None:
        before, member.steps = member.steps, steps
        held_back = self._held_back
        self._held_back = Steps(
            held_back.label + steps.label - before.label, held_back.total + steps.total - before.total
        )

    def _remove(self, site_id: SiteId, member: FamilyEntry) -> None:
        self._set_steps(member, Steps())
        del self._members[site_id]
        self._departed[site_id] = None
        for sites in (self._unreachable, self._awaiting, self._untold):
            sites.pop(site_id, None)

    def _require_possible(self, message: UpMessage) -> None:
        if message.family != self.family:
            raise ProtocolError(f"a message for family {message.family!r} reached the coordinator of {self.family!r}")
        counts = (count for _, count in message.counts) if isinstance(message, LabelReport) else (message.reported,)
        if message.total < self._least_total or any(count < 0 for count in counts):
            raise ProtocolError(f"{message} has a negative count")
