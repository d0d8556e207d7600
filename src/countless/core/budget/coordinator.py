"""The coordinator of one budget in one period, without I/O: every input returns the messages it causes.

Sites ask for units when their room is too small. The coordinator grants them from what is free, a share at a time, so
that few messages suffice and little is left at sites that do not need it. When nothing is free it starts a round: each
site with room returns it and reports. If the units are then too few, the request is refused.

    free       = cap - gone - limits of all holders         may be granted; cap = limit + what a reset has forgiven
    available  = cap - gone - units that count as used      what a recall can collect; see `holders` for "used"
    possible   = available + loose holds                    at least what is unspent in truth
    share      = 28 % of what is available, divided by the holders; fixed in a round until their number has doubled

| a request for `want` units of a site | answer                                                            |
|--------------------------------------|-------------------------------------------------------------------|
| fits the room of the site            | early: `Grant` of a share from what is free, or no answer         |
| what is missing is free              | `Grant` of that, and of a share if it is more                     |
| possible <= slack, or < want         | `Exhausted`, to it and to every site whose holds are loose        |
| otherwise                            | a new round; the request waits for it                             |

Right after a recall no hold is loose. A refused site is recalled as soon as units return that it was refused.
[Budgets](design/proofs/budgets.md) proves that no more than the limit is ever admitted, and when a request is refused.
"""

from collections.abc import Iterable

from countless.core.budget.amounts import require_amount, require_slack, slack_units
from countless.core.budget.holders import CURRENT, GIVEN_UP, MISSED, RECALLED, Holder, Holders
from countless.core.budget.messages import Ask, BudgetId, Exhausted, Grant, Outbox, Recall
from countless.core.budget.state import BudgetState, HolderRow, PersistentState, SavedSite, Usage
from countless.core.messages import SiteId
from countless.core.parameters import require_restored_round
from countless.errors import ProtocolError

SHARE_PERCENT = 28  # the least messages in the worst case: (2 + 2/f)/ln(1/f) is smallest near f = 0.28


class BudgetCoordinator:
    """Shares one limit among the sites that ask.

    `slack` is the share of the limit that may be left when a request is refused. `expected_holders` is the number of
    sites that will ask, if it is known: the first shares are made for it. With a `saved_state` the coordinator
    continues where an earlier one stopped: call `recover()` once and deliver what it returns.
    """

    def __init__(
        self,
        budget: BudgetId,
        limit: int,
        *,
        slack: float = 0.01,
        expected_holders: int = 1,
        saved_state: PersistentState | None = None,
    ) -> None:
        require_amount("limit", limit)
        require_slack(slack)
        require_amount("expected_holders", expected_holders)
        saved = saved_state or PersistentState(limit)
        self.budget = budget
        self.limit = saved.limit
        self.slack = slack
        self._slack_units = slack_units(slack, self.limit)
        self.round = saved.round
        self._forgiven = saved.forgiven  # units spent before the last reset
        self._gone = saved.gone  # units spent by sites that left
        self._lost = saved.lost  # units that sites may have spent that were given up and forgotten
        self._resetting = saved.resetting
        self._departed = dict.fromkeys(saved.departed)
        self._holders = Holders()
        for site_id, site in saved.sites:
            self._holders.add(site_id, Holder(site.limit, GIVEN_UP if site.given_up else CURRENT, site.spent))
        self._waiting: dict[SiteId, None] = {}  # sites with a request that was not answered yet, in order
        self._recalled: set[SiteId] = set()  # sites in the state RECALLED
        self._restoring = False
        self._unheard: dict[SiteId, None] = {}  # while restoring: holders of the copy that did not ask yet
        self._fresh = False  # whether a recall has just ended: every hold is known
        self._refused_from: int | None = None  # the smallest weight of an Exhausted in this round
        self._expected = expected_holders
        self._share = 0
        self._share_holders = 0  # the number of holders for which the share was made; 0: make it anew

    def __repr__(self) -> str:
        return f"<BudgetCoordinator of {self.budget.name!r} period {self.budget.period}: {self.usage}>"

    # Reading

    @property
    def free(self) -> int:
        """The units that may be granted. Negative while a lowered limit is not in force."""
        return self.limit + self._forgiven - self._gone - self._lost - self._holders.limits

    @property
    def available(self) -> int:
        """The units that are neither known to be spent or held, nor at a site that does not answer."""
        return self.limit + self._forgiven - self._gone - self._lost - self._holders.charged

    @property
    def site_ids(self) -> list[SiteId]:
        """All holders, also those that were given up."""
        return list(self._holders)

    @property
    def holders(self) -> int:
        """How many sites have asked and are present: the `expected_holders` of the next period."""
        return self._holders.present

    @property
    def held(self) -> int:
        """The units that sites held when they last reported."""
        return sum(holder.held for holder in self._holders.values())

    @property
    def holder_rows(self) -> list[HolderRow]:
        return [
            HolderRow(site_id, each.limit, each.spent, each.held, each.state is GIVEN_UP, each.refused_from)
            for site_id, each in self._holders.items()
        ]

    @property
    def refused_from(self) -> int | None:
        """The smallest request that was refused in this round; None if none was."""
        return self._refused_from

    @property
    def recalling(self) -> bool:
        """Whether requests wait for the answers to a recall."""
        return bool(self._recalled)

    def awaited(self, site_id: SiteId) -> int | None:
        """The round in which a site was recalled and has not answered; None: no answer of it is awaited."""
        return self.round if site_id in self._recalled else None

    @property
    def usage(self) -> Usage:
        before = self._gone - self._forgiven
        lower = max(0, before + self._holders.spent)
        leaked = sum(holder.limit - holder.spent for holder in self._holders.values() if holder.state is GIVEN_UP)
        return Usage(self.limit, lower, before + self._lost + self._holders.limits, self._lost + leaked, self._state)

    @property
    def _state(self) -> BudgetState:
        if self._restoring:
            return BudgetState.RESTORING
        if self._resetting:
            return BudgetState.RESETTING
        if self.free < 0:
            return BudgetState.LOWERING
        # A request that was larger than what is left says nothing about smaller ones.
        refused = self._refused_from is not None and self.available <= self._slack_units
        nothing_left = not self._recalled and self.available + self._holders.loose <= 0
        return BudgetState.EXHAUSTED if refused or nothing_left else BudgetState.OPEN

    @property
    def saved_state(self) -> PersistentState:
        sites = tuple((site_id, _saved(holder)) for site_id, holder in self._holders.items())
        departed = tuple(self._departed)
        return PersistentState(
            self.limit, self._forgiven, self._gone, self.round, sites, departed, self._lost, self._resetting
        )

    def saved_site(self, site_id: SiteId) -> SavedSite | None:
        """For owners that save one site at a time, not all of `saved_state`; None if it is no holder.

        An input changes what is saved of its sender, and of the sites to which it returns a `Grant`. Such an owner does
        not save who left: it must `forget` those sites.
        """
        holder = self._holders.get(site_id)
        return None if holder is None else _saved(holder)

    @property
    def forgiven(self) -> int:
        """Units spent before the last reset."""
        return self._forgiven

    @property
    def gone(self) -> int:
        """Units spent by sites that left."""
        return self._gone

    @property
    def lost(self) -> int:
        """Units that sites may have spent, beyond what they reported, that were given up and forgotten."""
        return self._lost

    @property
    def resetting(self) -> bool:
        """Whether a reset waits for the reports of sites."""
        return self._resetting

    @property
    def restoring(self) -> bool:
        """Whether the saved state was an older copy, and `end_restore` was not called yet."""
        return self._restoring

    @property
    def unheard(self) -> list[SiteId]:
        """While restoring: the holders of the copy that neither asked, nor left, nor were given up."""
        return list(self._unheard)

    # Messages and membership

    def recover(self) -> Outbox:
        """After a restart, recall every site: nothing is granted until all have answered or are unreachable."""
        return self._start_round(self._holders) + self._proceed()

    def restore(self) -> None:
        """Instead of `recover`, if the saved state is an older copy: believe what sites report, and grant nothing."""
        self._restoring = True
        self._unheard = {site_id: None for site_id, each in self._holders.items() if each.state is not GIVEN_UP}

    def end_restore(self) -> Outbox:
        """Every site that was granted units since the copy was made has asked, or left. Others may have `unheard`."""
        self._restoring = False
        self._unheard.clear()
        return self.recover()

    def join(self, site_id: SiteId, ask: Ask) -> Outbox:
        """The connection of a site is new or back: send again what may have been lost with the old one."""
        outbox = self.receive(site_id, ask)
        holder = self._holders.get(site_id)
        if holder is not None and holder.refused_from is not None:
            refusal = (site_id, Exhausted(self.budget, self.round, holder.refused_from))
            if refusal not in outbox:
                outbox.append(refusal)
        return outbox

    def receive(self, site_id: SiteId, ask: Ask) -> Outbox:
        """An `Ask`. One of a site that left or was given up is ignored, and so is one that a newer one overtook."""
        self._require_possible(site_id, ask)
        if site_id in self._departed:
            return []
        holder = self._holder(site_id)
        if holder.state is GIVEN_UP or ask.seq <= holder.seq:
            return []
        if self._restoring:
            return self._believe(site_id, holder, ask)
        with self._holders.changing(holder):
            holder.note(ask)
            if holder.state is not CURRENT:
                if ask.round < self.round:  # the recall was lost, or is on its way
                    return [(site_id, Recall(self.budget, self.round))]
                # The only place where a limit falls. The site returned its room, and was granted nothing since.
                holder.state, holder.limit = CURRENT, ask.limit
                self._recalled.discard(site_id)
            elif ask.limit > holder.limit:  # an overdraft; or a disk was restored from an older copy, unknown to us
                holder.limit = ask.limit
        outbox: Outbox = []
        self._waiting.pop(site_id, None)
        if ask.limit < holder.limit:  # the grant was lost, or is on its way: the site asks again if it is too small
            outbox.append((site_id, Grant(self.budget, self.round, holder.limit)))
        elif ask.want:
            self._waiting[site_id] = None
        return outbox + self._proceed()

    def _believe(self, site_id: SiteId, holder: Holder, ask: Ask) -> Outbox:
        """What was granted since the copy was made, and in which round. The round that ends it is above all others."""
        self.round = max(self.round, ask.round)
        self._unheard.pop(site_id, None)
        with self._holders.changing(holder):
            holder.note(ask)
            holder.limit = max(holder.limit, ask.limit)
        return []

    def mark_unreachable(self, site_id: SiteId) -> Outbox:
        """A site has timed out: do not wait for it. From the next recall on, its limit counts as spent."""
        holder = self._holders.get(site_id)
        if holder is None or holder.state is GIVEN_UP:
            return []
        holder.reachable = False
        self._waiting.pop(site_id, None)
        if holder.state is RECALLED:
            holder.state = MISSED  # both count with the limit, so no sum changes
            self._recalled.discard(site_id)
        return self._proceed()

    def give_up(self, site_id: SiteId) -> Outbox:
        """A site ended without handing in its units: its whole limit counts as spent, unless it leaves later."""
        if site_id in self._departed:
            return []
        holder = self._holder(site_id)
        with self._holders.changing(holder):
            holder.state, holder.refused_from = GIVEN_UP, None
        self._forget(site_id)
        return self._proceed()

    def reported(self, site_id: SiteId) -> tuple[int, int]:
        """The units that a holder has last reported as spent, and as held."""
        holder = self._holders[site_id]
        return holder.spent, holder.held

    def leave(self, site_id: SiteId, spent: int) -> Outbox:
        """A site hands in what it spent and held, for good. Repeated, it has no effect."""
        require_amount("spent", spent, 0)
        if site_id in self._departed:
            return []
        self._departed[site_id] = None
        self._gone += spent
        self._holders.remove(site_id)
        self._forget(site_id)
        return self._proceed()

    def return_units(self, units: int) -> Outbox:
        """Units of sites that left count no longer: the window of a rolling budget has passed them."""
        require_amount("units", units, 0, self._gone)
        self._gone -= units
        return self._proceed()

    def forget(self, site_id: SiteId) -> None:
        """Remember a site no longer that left, or was given up: then its whole limit counts as spent, for good.

        For owners that know that no message of the site is under way: another one makes it a new holder.
        """
        self._departed.pop(site_id, None)
        holder = self._holders.get(site_id)
        if holder is not None and holder.state is GIVEN_UP:
            self._holders.remove(site_id)
            self._gone += holder.spent
            self._lost += holder.limit - holder.spent

    def given_up_beyond(self, number: int) -> list[SiteId]:
        """The oldest of the sites that were given up, without the last `number` of them."""
        if len(self._holders) - self._holders.present <= number:
            return []
        given_up = [site_id for site_id, holder in self._holders.items() if holder.state is GIVEN_UP]
        return given_up[: len(given_up) - number]

    # The limit

    def set_limit(self, limit: int, slack: float | None = None) -> Outbox:
        """Raise or lower the limit, and the slack if it is given. A lowered limit is in force once `free` is not
        negative.
        """
        require_amount("limit", limit)
        if slack is not None:
            require_slack(slack)
            self.slack = slack
        self.limit = limit
        return self._limit_changed()

    def reset(self) -> Outbox:
        """Let sites spend the whole limit again.

        Every site that has room returns it and reports what it has spent. When all have answered or timed out, the
        spending reported until then is forgiven, in one step. From that moment on at most the limit is spent. Units
        that sites may have spent without a report, or hold, count as spent after the reset.
        """
        self._resetting = True
        outbox = [] if self._recalled or self._restoring else self._start_round(self._may_return())
        return outbox + self._proceed()

    def _limit_changed(self) -> Outbox:
        self._slack_units = slack_units(self.slack, self.limit)
        self._share_holders = 0
        outbox: Outbox = []
        if self.free < 0 and not self._recalled and not self._restoring:
            outbox = self._start_round(self._may_return())
        return outbox + self._proceed()

    # Rounds

    def _start_round(self, recalled: Iterable[SiteId]) -> Outbox:
        self.round += 1
        self._refused_from = None
        self._fresh = True
        self._share_holders = 0
        outbox: Outbox = []
        for site_id in recalled:
            holder = self._holders[site_id]
            if holder.state is GIVEN_UP:
                continue
            with self._holders.changing(holder):
                holder.refused_from = None
                holder.state = RECALLED if holder.reachable else MISSED
            if holder.reachable:
                self._recalled.add(site_id)
                outbox.append((site_id, Recall(self.budget, self.round)))
        return outbox

    def _may_return(self) -> list[SiteId]:
        return [site_id for site_id, holder in self._holders.items() if holder.may_return]

    def _proceed(self) -> Outbox:
        """Answer the requests that wait, unless a recall is under way."""
        outbox: Outbox = []
        if self._recalled or self._restoring:
            return outbox
        if self._resetting:
            self._resetting = False
            self._forgiven = max(self._forgiven, self._gone + self._holders.spent)  # less is known after a restart
            self._share_holders = 0
        if self._refused_from is not None and self._worth_a_round(self._refused_from, self._holders.loose):
            outbox += self._start_round(self._may_return())
        while self._waiting and not self._recalled:
            site_id = next(iter(self._waiting))
            outbox += self._serve(site_id, self._holders[site_id])
        if not self._recalled:
            self._fresh = False
        return outbox

    def _worth_a_round(self, weight: int, loose: int) -> bool:
        possible = self.available + loose
        return possible >= weight and possible > self._slack_units

    # One request

    def _serve(self, site_id: SiteId, holder: Holder) -> Outbox:
        missing, free = holder.want - holder.room, self.free
        if missing <= 0 or missing <= free:
            del self._waiting[site_id]
            units = min(free, max(missing, self._current_share()))
            return self._grant(site_id, holder, units) if units > 0 else []
        loose = 0 if self._fresh else self._holders.loose - holder.loose
        if self._worth_a_round(holder.want, loose):
            return self._start_round(self._may_return())
        del self._waiting[site_id]
        return self._refuse(site_id, loose)

    def _grant(self, site_id: SiteId, holder: Holder, units: int) -> Outbox:
        with self._holders.changing(holder):
            holder.limit += units
        return [(site_id, Grant(self.budget, self.round, holder.limit))]

    def _refuse(self, asking: SiteId, loose: int) -> Outbox:
        """Refuse the request of a site. Sites with loose holds are told as well, so that they report what returns."""
        possible, free = self.available + loose, self.free
        within_slack = possible <= self._slack_units
        outbox: Outbox = []
        told = {asking: self._holders[asking]}
        if self._holders.loose:
            told |= {site_id: holder for site_id, holder in self._holders.items() if holder.loose}
        for site_id, holder in told.items():
            weight = max(holder.room + free, 0) + 1 if within_slack else possible + 1
            with self._holders.changing(holder):
                holder.refused_from = min(weight, holder.refused_from or weight)
            self._refused_from = min(weight, self._refused_from or weight)
            outbox.append((site_id, Exhausted(self.budget, self.round, weight)))
        return outbox

    def _current_share(self) -> int:
        holders = self._holders.present
        if self.round == 0:
            holders = max(holders, self._expected)
        if not self._share_holders or holders >= 2 * self._share_holders:
            self._share_holders = holders
            self._share = -(-SHARE_PERCENT * max(self.available, 0) // (100 * holders))
        return self._share

    # Small parts

    def _holder(self, site_id: SiteId) -> Holder:
        return self._holders.get(site_id) or self._holders.add(site_id, Holder())

    def _forget(self, site_id: SiteId) -> None:
        self._waiting.pop(site_id, None)
        self._recalled.discard(site_id)
        self._unheard.pop(site_id, None)

    def _require_possible(self, site_id: SiteId, ask: Ask) -> None:
        if ask.budget != self.budget:
            raise ProtocolError(f"an Ask for budget {ask.budget} reached the coordinator of {self.budget}")
        if ask.round > self.round and not self._restoring:
            raise ProtocolError(
                f"{site_id} sent an Ask of round {ask.round}; the present round is {self.round}. If the coordinator's "
                "state was restored from an older copy, start it with --after-restore"
            )
        require_restored_round(ask.round, self.round)
        if not 0 <= ask.spent <= ask.spent + ask.held <= ask.limit or ask.want < 0:
            raise ProtocolError(f"{ask} of {site_id} spends more than its limit, or has a negative amount")


def _saved(holder: Holder) -> SavedSite:
    return SavedSite(holder.limit, holder.state is GIVEN_UP, holder.spent)
