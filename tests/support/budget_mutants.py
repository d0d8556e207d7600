"""Mistakes in the protocol of budgets. Random runs must find each of them."""

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.holders import Holder
from countless.core.budget.messages import Ask, Outbox, Quota
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId

# Units are free before their time


class FreesRoomsThatItRecalls(BudgetCoordinator):
    """It does not wait for the answers."""

    def _recall(self) -> Outbox:
        outbox = super()._recall()
        for site_id in self._awaited:
            holder = self._holders[site_id]
            with self._holders.changing(holder):
                holder.returned += self._holders.unspent(holder)
        self._awaited.clear()
        return outbox


class FreesRoomsOfSilentSites(BudgetCoordinator):
    @property
    def free(self) -> int:
        silent = (each for each in self._holders.values() if not each.reachable and not each.given_up)
        return super().free + sum(map(self._holders.unspent, silent))


class ChargesNoMoreThanIsHandedIn(BudgetCoordinator):
    """The file of the site may be an older one."""

    def leave(self, site_id: SiteId, units: int) -> Outbox:
        holder = self._holders.get(site_id)
        if holder is not None:
            with self._holders.changing(holder):
                holder.spent = min(holder.spent, units)
        return super().leave(site_id, units)


# Order


class BelievesAsksThatHaveNotSeenTheNewestQuota(BudgetCoordinator):
    def _note(self, site_id: SiteId, holder: Holder, ask: Ask) -> Outbox:
        number, granted = max(ask.number, holder.number), max(ask.granted, holder.granted)
        return super()._note(site_id, holder, ask._replace(number=number, granted=granted))


class BelievesOlderAsks(BudgetCoordinator):
    def receive(self, site_id: SiteId, ask: Ask) -> Outbox:
        if site_id in self._holders:
            self._holders[site_id].seq = min(self._holders[site_id].seq, ask.seq - 1)
        return super().receive(site_id, ask)


class BelievesOlderQuotas(BudgetSite):
    def receive(self, quota: Quota) -> None:
        self.number = min(self.number, quota.number - 1)
        super().receive(quota)


class LosesTheTurn(BudgetCoordinator):
    """A request that others were recalled for is the last in line when they have answered."""

    def _recall(self) -> Outbox:
        outbox = super()._recall()
        first = next(iter(self._waiting), None)
        if first is not None:
            del self._waiting[first]
            self._waiting[first] = None
        return outbox


# Refusals


class NeverReopens(BudgetCoordinator):
    def _reopen(self) -> Outbox:
        return []


class GrantsQueuedRequestsWhatIsPossible(BudgetCoordinator):
    """Not only what is free."""

    def _reopen(self) -> Outbox:
        possible = [
            (site_id, self._holders[site_id])
            for site_id in self._refusing
            if self._holders[site_id].queued and self._holders[site_id].want <= self.possible
        ]
        return [self._grant(site_id, holder, holder.want, lend=False) for site_id, holder in possible]


class RefusesEveryWeight(BudgetCoordinator):
    def _quota(self, site_id: SiteId, holder: Holder) -> tuple[SiteId, Quota]:
        _, quota = super()._quota(site_id, holder)
        return site_id, quota if quota.refuse_from is None else quota._replace(refuse_from=1)


class SettlesInSilence(BudgetSite):
    """What holds return is not told until there is another request."""

    def proceed(self) -> tuple[Ask, ...]:
        if self._reply or (self.want and not self._asked):
            return super().proceed()
        self._repeating = False
        return ()


class RepeatsRefusalsToSitesInLine(BudgetCoordinator):
    def _quota(self, site_id: SiteId, holder: Holder) -> tuple[SiteId, Quota]:
        _, quota = super()._quota(site_id, holder)
        return site_id, quota._replace(refuse_from=self._refusing.get(site_id))


class LendsWhatItHasRecalled(BudgetCoordinator):
    """A site counts as lent when it has returned its room."""

    def _note(self, site_id: SiteId, holder: Holder, ask: Ask) -> Outbox:
        lent, outbox = holder.lent, super()._note(site_id, holder, ask)
        with self._holders.changing(holder):
            holder.lent = holder.lent or lent
        return outbox


# Memberships


class ForgetsWhoLeft(BudgetCoordinator):
    def receive(self, site_id: SiteId, ask: Ask) -> Outbox:
        self._departed.clear()
        return super().receive(site_id, ask)


class BelievesMembersOfAnOlderBudget(BudgetCoordinator):
    """The budget was deleted and made again."""

    def _begin(self, site_id: SiteId, ask: Ask) -> Outbox:
        return self._note(site_id, self._holders.add(site_id, Holder(ask.since or ask.seq)), ask)


# Resets


class ForgivesLimits(BudgetCoordinator):
    def _proceed(self) -> Outbox:
        if self.resetting and not self._awaited and not self.restoring:
            self.resetting = False
            self.forgiven = max(self.forgiven, self.gone + self._holders.limits)
            self._share_holders = 0
        return super()._proceed()


class ResetsAskOnlyWhoIsLent(BudgetCoordinator):
    def reset(self) -> Outbox:
        self.resetting = True
        asked = [(each, holder) for each, holder in self._holders.items() if holder.lent]
        outbox = [self._await(each, holder) for each, holder in asked if self._holders.may_return(holder)]
        return outbox + self._proceed()
