"""A site that spends budgets of a site server without sockets: its states are those of production."""

from collections import Counter

from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.budget.rolling import RollingSite
from countless.core.budget.site import BudgetSite, Verdict
from countless.wire.budgets import BudgetRejected, SetBudgetRule
from countless.wire.frames import DownItem, UpItem
from support.site_server import FakeConnection, SiteServerHarness

TOKENS = BudgetId("tokens")


def first_ask(name: str, want: int, period: int = 0, *, seq: int = 1) -> Ask:
    """Of a site that has nothing of this budget yet."""
    return Ask(BudgetId(name, period), seq, since=0, number=0, granted=0, returned=0, spent=0, held=0, want=want)


class Spender:
    """Requests wait until `exchange` brings their answers. `rolling`: the window of all its budgets."""

    def __init__(
        self, harness: SiteServerHarness, name: str, incarnation: int = 1, *, rolling: float | None = None
    ) -> None:
        self.harness, self.name, self.incarnation, self.rolling = harness, name, incarnation, rolling
        self.connection = FakeConnection()
        self.sites: dict[BudgetId, BudgetSite] = {}
        self.waiting: list[tuple[BudgetId, int]] = []
        self.admitted: Counter[BudgetId] = Counter()
        self._read = 0

    async def connect(self) -> "Spender":
        """And say all that the coordinator may have missed."""
        self.session, self.connection = await self.harness.connect(self.name, self.incarnation)
        await self.send(*(self.of(budget).resend() for budget, site in self.sites.items() if site.seq))
        await self.exchange()
        return self

    def disconnect(self) -> None:
        self.harness.server.on_disconnect(self.session, self.connection)

    def of(self, budget: BudgetId = TOKENS) -> BudgetSite:
        """Its state, at the present time."""
        site = self.sites.get(budget) or self._begin(budget)
        if isinstance(site, RollingSite):
            site.advance(self.harness.time)
        return site

    def _begin(self, budget: BudgetId, seq: int = 0, since: int = 0) -> BudgetSite:
        if self.rolling is None:
            self.sites[budget] = BudgetSite(budget, seq=seq, since=since)
        else:
            self.sites[budget] = RollingSite(budget, self.rolling, seq=seq, since=since)
        return self.sites[budget]

    # What was received since the last `send` or `take`

    @property
    def received(self) -> list[DownItem]:
        """All but rules."""
        return [item for item in self.connection.received if not isinstance(item, SetBudgetRule)]

    @property
    def rules(self) -> list[SetBudgetRule]:
        return [item for item in self.connection.received if isinstance(item, SetBudgetRule)]

    @property
    def quotas(self) -> list[Quota]:
        return [item for item in self.connection.received if isinstance(item, Quota)]

    # What it does

    async def send(self, *items: UpItem) -> list[DownItem]:
        """Nothing that is received has an effect before `exchange`."""
        await self.harness.server.flush()
        self.connection.received.clear()
        self._read = 0
        await self._send(*items)
        return self.received

    async def take(self, n: int, budget: BudgetId = TOKENS) -> Verdict:
        taken = self.of(budget).take(n)
        await self.send(*taken.messages)
        if taken.verdict is not Verdict.WAITING:
            self.admitted[budget] += n * (taken.verdict is Verdict.ALLOWED)
            return taken.verdict
        self.waiting.append((budget, n))
        decided = await self.exchange()
        return decided[-1] if decided else Verdict.WAITING

    async def exchange(self) -> list[Verdict]:
        """Handle what has arrived until nothing more does. The requests that were decided, in order."""
        decided: list[Verdict] = []
        await self.harness.server.flush()
        while arrived := self.connection.received[self._read :]:
            self._read += len(arrived)
            for item in arrived:
                self._receive(item)
            for budget in self.sites:
                self.of(budget).repeat()
            repeated, self.waiting = self.waiting, []
            for budget, n in repeated:
                verdict = self.of(budget).take(n).verdict
                if verdict is Verdict.WAITING:
                    self.waiting.append((budget, n))
                else:
                    self.admitted[budget] += n * (verdict is Verdict.ALLOWED)
                    decided.append(verdict)
            await self._send(*(ask for site in self.sites.values() for ask in site.proceed()))
        return decided

    def _receive(self, item: DownItem) -> None:
        if isinstance(item, Quota):
            site = self.of(item.budget)
            if site.is_outlived(item):
                site = self._begin(item.budget, site.seq, item.since)
            site.receive(item)
        elif isinstance(item, BudgetRejected):
            site = self.of(item.budget)
            self._begin(item.budget, site.seq, site.since)
            self.waiting = [each for each in self.waiting if each[0] != item.budget]

    async def _send(self, *items: UpItem) -> None:
        for site in self.sites.values():
            if isinstance(site, RollingSite):
                site.record()
        if items:
            self.harness.server.on_frame(self.session, self.connection, list(items), 10)
        await self.harness.server.flush()
