"""The coordinator of one budget in one period, without I/O: every input returns the messages it causes.

A site whose room is too small asks. It is granted what waits there, or a share and *lent* it: then it decides alone
until that is used. A site that is not lent returns at once what it does not use. When too little is free and lent sites
have the rest, they are recalled; if that is too little as well, the request is refused.

    free      = limit + forgiven - gone - lost - limits of all holders     may be granted
    possible  = free + what the lent sites that answer may have left       what a recall may collect
    share     = 28 % of what is possible, divided by the holders; made anew after a recall, or when either has doubled

| the first request in line, while no site is awaited | answer                                                     |
|-----------------------------------------------------|------------------------------------------------------------|
| is free                                             | `Quota` of it, and of the others at its site; or of a share |
| is possible, and more than the slack is             | recalls all lent sites, and waits for them                 |
| is neither                                          | `Quota` that refuses                                       |

Sites that refuse what has become possible are told so. [Budgets](design/proofs/budgets.md) proves that no more than the
limit is ever admitted, when a request is refused, and how many messages that takes.
"""

from countless.core.budget.amounts import require_amount, require_slack, slack_units
from countless.core.budget.holders import Holder, Holders
from countless.core.budget.messages import Ask, BudgetId, Outbox, Pane, Quota
from countless.core.budget.state import BudgetState, HolderRow, PersistentBudget, SavedSite, Usage
from countless.core.messages import SiteId
from countless.errors import InvalidParameter, ProtocolError

SHARE_PERCENT = 28  # the least messages in the worst case: (2 + 2/f)/ln(1/f) is smallest near f = 0.28


class BudgetCoordinator:
    """Shares one limit among the sites that ask.

    `slack` is the share of the limit that may be left when a request is refused. `expected_holders` is the number of
    sites that will ask, if it is known: the first shares are made for it. With a `saved_state` the coordinator
    continues where an earlier one stopped: call `recover()` once and deliver what it returns.

    Of a `rolling` budget the owner calls `take_panes` after each input, and `return_units` when they have come back.
    """

    def __init__(
        self,
        budget: BudgetId,
        limit: int,
        *,
        slack: float = 0.01,
        expected_holders: int = 1,
        rolling: bool = False,
        saved_state: PersistentBudget | None = None,
    ) -> None:
        require_amount("limit", limit)
        require_slack(slack)
        require_amount("expected_holders", expected_holders)
        saved = saved_state or PersistentBudget(limit)
        self.budget = budget
        self.limit = saved.limit
        self.slack = slack
        self.asks = 0  # requests that got in line
        self.recalls = 0
        self.forgiven = saved.forgiven  # units spent before the last reset
        self.gone = saved.gone  # units spent by sites that left; rolling: handed over, and not come back
        self.lost = saved.lost  # units that sites may have spent, beyond what they reported, given up and forgotten
        self.resetting = saved.resetting  # whether a reset waits for Asks
        self.restoring = False  # whether the saved state was an older copy, and `end_restore` was not called yet
        self._slack_units = slack_units(slack, self.limit)
        self._departed = dict.fromkeys(saved.departed)
        self._holders = Holders(rolling=rolling)
        for site_id, (granted, returned, spent, given_up, since) in saved.sites:
            holder = Holder(since, granted, returned, spent, lent=not given_up, given_up=given_up)
            self._holders.add(site_id, holder)
        self._waiting: dict[SiteId, None] = {}  # sites with a request that was not answered yet, in order
        self._awaited: dict[SiteId, int] = {}  # sites that must answer first; the number of the Quota to be answered
        self._refusing: dict[SiteId, int] = {}  # sites that refuse requests of so many units, and of more
        self._unheard: dict[SiteId, None] = {}  # while restoring: holders of the copy that did not ask yet
        self._panes: list[Pane] = []
        self._expected = expected_holders
        self._share = self._share_holders = self._share_units = 0  # the last two: for which it was made; 0: anew

    def __repr__(self) -> str:
        return f"<BudgetCoordinator of {self.budget.name!r} period {self.budget.period}: {self.usage}>"

    # Reading

    @property
    def free(self) -> int:
        """The units that may be granted. Negative while a lowered limit is not in force."""
        return self.limit + self.forgiven - self.gone - self.lost - self._holders.limits

    @property
    def possible(self) -> int:
        """The units that may be left, as far as sites that answer can tell."""
        return self.free + self._holders.room

    @property
    def site_ids(self) -> list[SiteId]:
        """All holders, also those that were given up."""
        return list(self._holders)

    @property
    def holders(self) -> int:
        """The number of sites that have asked and are present: the `expected_holders` of the next period."""
        return self._holders.present

    @property
    def held(self) -> int:
        """The units that sites held when they last reported."""
        return sum(holder.held for holder in self._holders.values())

    @property
    def holder_rows(self) -> list[HolderRow]:
        return [
            HolderRow(site_id, each.limit, each.spent, each.held, each.lent, each.given_up, self._refusing.get(site_id))
            for site_id, each in self._holders.items()
        ]

    @property
    def refused_from(self) -> int | None:
        """The smallest request that a site refuses; None if none does."""
        return min(self._refusing.values(), default=None)

    @property
    def recalling(self) -> bool:
        """True if requests, or a reset, wait for sites."""
        return bool(self._awaited)

    def awaited(self, site_id: SiteId) -> int | None:
        """The number of the `Quota` that an `Ask` of this site must have seen; None: nothing waits for it."""
        return self._awaited.get(site_id)

    @property
    def usage(self) -> Usage:
        before = self.gone - self.forgiven
        lower = max(0, before + self._holders.spent)
        leaked = sum(self._holders.unspent(holder) for holder in self._holders.values() if holder.given_up)
        return Usage(self.limit, lower, before + self.lost + self._holders.limits, self.lost + leaked, self._state)

    @property
    def _state(self) -> BudgetState:
        if self.restoring:
            return BudgetState.RESTORING
        if self.resetting:
            return BudgetState.RESETTING
        if self.free < 0:
            return BudgetState.LOWERING
        # A request that was larger than what is left says nothing about smaller ones.
        exhausted = self.possible <= (self._slack_units if self._refusing else 0)
        return BudgetState.EXHAUSTED if exhausted else BudgetState.OPEN

    @property
    def saved_state(self) -> PersistentBudget:
        sites = tuple((site_id, _saved(holder)) for site_id, holder in self._holders.items())
        departed = tuple(self._departed)
        return PersistentBudget(self.limit, self.forgiven, self.gone, sites, departed, self.lost, self.resetting)

    def saved_site(self, site_id: SiteId) -> SavedSite | None:
        """For owners that save one site at a time, not all of `saved_state`; None if it is no holder.

        An input changes what is saved of its sender, and of the sites to which it returns a `Quota`. Such an owner does
        not save who left: it must `forget` those sites.
        """
        holder = self._holders.get(site_id)
        return None if holder is None else _saved(holder)

    def reported(self, site_id: SiteId) -> tuple[int, int]:
        """The units that a holder has last reported as spent, and as held."""
        holder = self._holders[site_id]
        return holder.spent, holder.held

    @property
    def unheard(self) -> list[SiteId]:
        """While restoring: the holders of the copy that neither asked, nor left, nor were given up."""
        return list(self._unheard)

    # Messages and membership

    def recover(self) -> Outbox:
        """After a restart: wait for the first `Ask` of each site that may have room. Each sends one, unasked."""
        for site_id, holder in self._holders.items():
            if not holder.seq and self._holders.may_return(holder):
                self._awaited[site_id] = holder.number
        return self._proceed()

    def restore(self) -> None:
        """Instead of `recover`, if the saved state is an older copy: believe what sites report, and grant nothing."""
        self.restoring = True
        self._unheard = {site_id: None for site_id, each in self._holders.items() if not each.given_up}

    def end_restore(self) -> Outbox:
        """Every site that was granted units since the copy was made has asked, or left. Others may have `unheard`."""
        self.restoring = False
        self._unheard.clear()
        return self.recover()

    def join(self, site_id: SiteId, ask: Ask) -> Outbox:
        """The connection of a site is new or back: send again what may have been lost with the old one."""
        outbox = self.receive(site_id, ask)
        holder = self._holders.get(site_id)
        if holder is None or holder.given_up or any(each == site_id for each, _ in outbox):
            return outbox
        if site_id in self._waiting and site_id not in self._awaited:
            return outbox  # its answer is to come
        return [*outbox, self._quota(site_id, holder)]

    def receive(self, site_id: SiteId, ask: Ask) -> Outbox:
        """An `Ask`. One of a site that left or was given up is ignored, and so is one that a newer one overtook."""
        self._require_possible(site_id, ask)
        if site_id in self._departed:
            return []
        holder = self._holders.get(site_id)
        if holder is not None and self.restoring and self._is_later_membership(site_id, holder, ask):
            self._charge(site_id, holder)
            holder = None
        if holder is None:
            return self._begin(site_id, ask)
        if holder.given_up or ask.seq <= holder.seq:
            return []
        if ask.since not in (0, holder.since):  # of an older membership: its totals do not count in this one
            holder.seq = ask.seq
            return [] if holder.number else [self._quota(site_id, holder)]
        return self._note(site_id, holder, ask)

    def _is_later_membership(self, site_id: SiteId, holder: Holder, ask: Ask) -> bool:
        return holder.since < ask.since or (not ask.since and not holder.seq and site_id in self._unheard)

    def _begin(self, site_id: SiteId, ask: Ask) -> Outbox:
        if not ask.since or self.restoring:
            return self._note(site_id, self._holders.add(site_id, Holder(ask.since or ask.seq)), ask)
        holder = self._holders.add(site_id, Holder(ask.seq))  # the budget was deleted and made again meanwhile
        holder.seq = ask.seq
        return [self._quota(site_id, holder)]

    def _note(self, site_id: SiteId, holder: Holder, ask: Ask) -> Outbox:
        self._unheard.pop(site_id, None)
        if self._holders.rolling:
            self._take_over(ask.spent - holder.spent, ask.panes)
        seen = ask.number >= holder.number and ask.granted >= holder.granted
        answered = seen and ask.number >= self._awaited.get(site_id, 0)
        with self._holders.changing(holder):
            holder.note(ask)
            holder.number = max(holder.number, ask.number)
            if seen:
                holder.lent = ask.keep
        if answered:
            self._awaited.pop(site_id, None)
        if not ask.want:
            self._waiting.pop(site_id, None)
        elif seen:  # otherwise a Quota is on its way, which makes the site ask again if need be
            self._waiting[site_id] = None
            self.asks += 1
        outbox = self._proceed()
        early = seen and ask.keep and ask.more and not ask.want and holder.number == ask.number
        if early and self.free > 0 and not (self._awaited or self._waiting or self.restoring):
            outbox.append(self._grant(site_id, holder, min(self.free, self._current_share()), lend=True))
        return outbox

    def mark_unreachable(self, site_id: SiteId) -> Outbox:
        """A site has timed out: do not wait for it. Its limit counts as used until it asks."""
        holder = self._holders.get(site_id)
        if holder is None or holder.given_up:
            return []
        with self._holders.changing(holder):
            holder.reachable = False
        self._ignore(site_id)
        return self._proceed()

    def give_up(self, site_id: SiteId) -> Outbox:
        """A site ended without handing in its units: its whole limit counts as spent, unless it leaves later."""
        if site_id in self._departed:
            return []
        holder = self._holders.get(site_id) or self._holders.add(site_id, Holder(0))
        with self._holders.changing(holder):
            holder.given_up, holder.lent = True, False
        self._forget(site_id)
        return self._proceed()

    def leave(self, site_id: SiteId, units: int) -> Outbox:
        """A site hands in what it spent and held, for good; rolling, with what it has handed over before.

        Repeated, it has no effect.
        """
        if units < 0:
            raise InvalidParameter("units", units, "0 or more")
        if site_id in self._departed:
            return []
        self._departed[site_id] = None
        holder = self._holders.get(site_id)
        known = 0 if holder is None else holder.spent
        if self._holders.rolling:
            self._take_over(max(0, units - known))
        else:
            self.gone += max(units, known)  # less, if its file was an older copy
        self._holders.remove(site_id)
        self._forget(site_id)
        return self._proceed()

    def forget(self, site_id: SiteId) -> None:
        """Remember a site no longer that left, or was given up: then its whole limit counts as spent, for good.

        For owners that know that no message of the site is under way: another one makes it a new holder.
        """
        self._departed.pop(site_id, None)
        holder = self._holders.get(site_id)
        if holder is not None and holder.given_up:
            self._charge(site_id, holder)

    def given_up_beyond(self, number: int) -> list[SiteId]:
        """The oldest of the sites that were given up, without the last `number` of them."""
        if len(self._holders) - self._holders.present <= number:
            return []
        given_up = [site_id for site_id, holder in self._holders.items() if holder.given_up]
        return given_up[: len(given_up) - number]

    # Rolling

    def take_panes(self) -> list[Pane]:
        """The units handed over since the last call: each counts for a window, less its age."""
        panes, self._panes = self._panes, []
        return panes

    def return_units(self, units: int) -> Outbox:
        """Units that were handed over count no longer: the window has passed them."""
        require_amount("units", units, 0, self.gone)
        self.gone -= units
        return self._proceed()

    def _take_over(self, units: int, panes: tuple[Pane, ...] = ()) -> None:
        """Units that an `Ask` which was lost has told count with age 0."""
        if units <= 0:
            return
        self.gone += units
        for pane in reversed(panes):
            told = min(units, pane.units)
            if told:
                self._panes.append(Pane(pane.age, told))
            units -= told
        if units:
            self._panes.append(Pane(0.0, units))

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
        self._slack_units = slack_units(self.slack, limit)
        self._share_holders = 0
        return self._proceed()

    def reset(self) -> Outbox:
        """Let sites spend the whole limit again.

        Every site that may have spent since its last `Ask` sends one. When all have answered or timed out, the spending
        reported until then is forgiven, in one step. From that moment on at most the limit is spent. Units that sites
        may have spent without a report, or hold, count as spent after the reset.
        """
        self.resetting = True
        outbox: Outbox = []
        if not self.restoring:
            for site_id, holder in self._holders.items():
                if self._holders.may_return(holder):
                    outbox.append(self._await(site_id, holder))
        return outbox + self._proceed()

    def dismiss(self) -> Outbox:
        """Let every site ask, for an owner that begins the budget again: those that ask are no holders any more."""
        return [self._await(site_id, each) for site_id, each in self._holders.items() if not each.given_up]

    # The requests in line

    def _proceed(self) -> Outbox:
        """Answer the requests that wait, unless a site is awaited; then tell sites that refuse too much.

        While more is granted than the limit, no site keeps room that it does not use.
        """
        outbox: Outbox = []
        if self.restoring:
            return outbox
        if self.resetting and not self._awaited:
            self.resetting = False
            self.forgiven = max(self.forgiven, self.gone + self._holders.spent)  # less is known after a restart
            self._share_holders = 0
        if self.free < 0 < self._holders.room and not self._awaited:  # for a lowered limit, whoever comes back later
            outbox += self._recall()
        while self._waiting and not self._awaited:
            site_id = next(iter(self._waiting))
            holder, possible = self._holders[site_id], self.possible
            if possible > self._slack_units and self.free < holder.want <= possible:
                outbox += self._recall()
            else:
                del self._waiting[site_id]
                outbox.append(self._decide(site_id, holder))
        return outbox + self._reopen() if self._refusing and self.possible > self._slack_units else outbox

    def _decide(self, site_id: SiteId, holder: Holder) -> tuple[SiteId, Quota]:
        free, possible = self.free, self.possible
        if holder.want > free:
            self._refusing[site_id] = (possible if possible > self._slack_units else max(0, free)) + 1
            return self._quota(site_id, holder)
        units, share = min(holder.want + holder.more, free), self._current_share()
        return self._grant(site_id, holder, max(units, min(share, free)), lend=share > units)

    def _grant(self, site_id: SiteId, holder: Holder, units: int, *, lend: bool) -> tuple[SiteId, Quota]:
        with self._holders.changing(holder):
            holder.granted += units
            holder.lent = lend
        if lend:
            self._refusing.pop(site_id, None)
        return self._quota(site_id, holder)

    def _recall(self) -> Outbox:
        self.recalls += 1
        self._share_holders = 0
        return [
            self._await(site_id, holder)
            for site_id, holder in self._holders.items()
            if holder.lent and self._holders.may_return(holder)
        ]

    def _await(self, site_id: SiteId, holder: Holder) -> tuple[SiteId, Quota]:
        self._awaited[site_id] = holder.number + 1
        return self._quota(site_id, holder)

    def _reopen(self) -> Outbox:
        """A site refuses what has become possible, and does not wait for an answer. A queued one is granted it."""
        outbox: Outbox = []
        for site_id, weight in list(self._refusing.items()):
            possible, holder = self.possible, self._holders[site_id]
            if not self._slack_units < possible >= weight or site_id in self._waiting:
                continue
            del self._refusing[site_id]
            if holder.queued and holder.reachable and holder.want <= self.free and not self._waiting:
                outbox.append(self._grant(site_id, holder, holder.want, lend=False))
            else:
                outbox.append(self._quota(site_id, holder))
        return outbox

    def _quota(self, site_id: SiteId, holder: Holder) -> tuple[SiteId, Quota]:
        holder.number += 1
        awaited = site_id in self._awaited
        keep = holder.lent and not awaited
        refuse_from = None if site_id in self._waiting else self._refusing.get(site_id)  # until its turn decides
        quota = Quota(self.budget, holder.since, holder.number, holder.granted, keep, refuse_from, awaited)
        return site_id, quota

    def _current_share(self) -> int:
        holders, units = self._holders.present, max(self.possible, 0)
        if not self.recalls:
            holders = max(holders, self._expected)
        if not self._share_holders or holders >= 2 * self._share_holders or units >= 2 * self._share_units:
            self._share_holders, self._share_units = holders, units
            self._share = -(-SHARE_PERCENT * units // (100 * holders))
        return self._share

    # Small parts

    def _charge(self, site_id: SiteId, holder: Holder) -> None:
        """All that a holder may have spent counts for good."""
        self._holders.remove(site_id)
        if self._holders.rolling:
            self._take_over(holder.limit)
        else:
            self.gone += holder.spent
            self.lost += holder.limit - holder.spent
        self._forget(site_id)

    def _forget(self, site_id: SiteId) -> None:
        self._ignore(site_id)
        self._unheard.pop(site_id, None)
        self._refusing.pop(site_id, None)

    def _ignore(self, site_id: SiteId) -> None:
        self._waiting.pop(site_id, None)
        self._awaited.pop(site_id, None)

    def _require_possible(self, site_id: SiteId, ask: Ask) -> None:
        if ask.budget != self.budget:
            raise ProtocolError(f"an Ask for budget {ask.budget} reached the coordinator of {self.budget}")
        amounts = ask.since, ask.number, ask.returned, ask.spent, ask.held, ask.want, ask.more
        used = ask.held if self._holders.rolling else ask.spent + ask.held
        if min(amounts) < 0 or used > ask.granted - ask.returned:
            raise ProtocolError(f"{ask} of {site_id} uses more than it was granted, or has a negative amount")
        if any(pane.units < 0 or not pane.age >= 0 for pane in ask.panes):
            raise ProtocolError(f"{ask} of {site_id} hands over a negative amount, or has a negative age")
        holder = self._holders.get(site_id)
        if holder is not None and ask.since > holder.since and not (self.restoring or holder.given_up):
            raise ProtocolError(
                f"{site_id} sent an Ask of membership {ask.since}; the one known here is {holder.since}. If the "
                "coordinator's state was restored from an older copy, start it with --after-restore"
            )


def _saved(holder: Holder) -> SavedSite:
    return SavedSite(holder.granted, holder.returned, holder.spent, holder.given_up, holder.since)
