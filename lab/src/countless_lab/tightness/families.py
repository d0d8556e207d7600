"""Families and distributions: labels, the total, the top and ranks, with one hot label beside fresh ones."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import nextafter
from typing import Any

from countless.core.answer import State
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.distribution import Buckets, BucketSite, Ranks
from countless.core.family.messages import LabelReport, Totals
from countless.core.family.rule import CertainSteps
from countless.core.family.site import FamilySite
from countless.core.messages import SiteId
from countless.planning.families import most_messages
from countless_lab.tightness.search import Group, Ratios, Row, Run

FAMILY = "f"
MAX_SITES = 8
MAX_TOTAL = 1 << 40
KINDS = 12
HOT = ("1", "2", "3")


@dataclass(frozen=True)
class Setting:
    epsilon: float
    sites: int
    buckets: bool = False


SETTINGS = (
    Setting(0.1, 1),
    Setting(0.1, 3),
    Setting(0.05, 5),
    Setting(0.02, 3),
    Setting(0.25, 2),
    Setting(0.1, 2, True),
    Setting(0.05, 4, True),
)
ROWS = (
    Row("C75 bounds", "C75", "violations: a label or the total outside its bounds", True),
    Row("C75 label", "C75", "width of a label <= 3/4 epsilon N"),
    Row("C75 total", "C75", "error of the estimate of the total <= epsilon N"),
    Row("C76 missing", "C76", "violations: a label with its share of the total is not listed", True),
    Row("C76 listed", "C76", "share of a listed label below phi <= (3/4 + 2 phi) epsilon"),
    Row(
        "C77",
        "C77",
        "messages of a fixed fleet <= most_messages(k, epsilon, N)",
        why="the bound adds the reports of labels to those of the total, and each report is for both; "
        "by reports of labels alone three quarters are possible, in a round that begins with nothing hidden less",
    ),
    Row("C78", "C78", "violations: more is known than was counted", True),
    Row("C81 bounds", "C81", "violations: a rank or a quantile outside its bounds", True),
    Row("C81 rank", "C81", "rank of the bucket of an estimated quantile, less q N <= max(q, 1 - q) epsilon N + 1"),
)
QUANTILES = (0.0, 0.01, 0.5, 0.9, 0.99, 1.0)


class World:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.epsilon = Fraction(repr(setting.epsilon))
        self.ratios: Ratios = dict.fromkeys((row.name for row in ROWS), 0.0)
        shares = (Fraction(1), Fraction(1)) if setting.buckets else ()
        self.rule = CertainSteps(setting.epsilon, *shares)
        self.site: type[FamilySite] = BucketSite if setting.buckets else FamilySite
        fleet = [SiteId(number) for number in range(setting.sites)]
        self.coordinator = FamilyCoordinator(FAMILY, self.rule, fleet=fleet)
        self.sites = {each: self.site(FAMILY) for each in fleet}
        self.cut_off: dict[SiteId, None] = {}
        self.truth: Counter[str] = Counter()
        self.hidden: Counter[tuple[SiteId, str]] = Counter()  # what a site has not reported of a label
        self.untold: Counter[SiteId] = Counter()  # what a site has counted since it sent its total
        self.messages = self.fresh = self.joined = 0
        self.fixed = True

    @property
    def total(self) -> int:
        return self.truth.total()

    def up(self, site_id: SiteId, messages: Iterable[Any]) -> None:
        for message in messages:
            if site_id not in self.cut_off:
                self.messages += 1
                self._sent(site_id, message)
                self.down(self.coordinator.receive(site_id, message))

    def down(self, outbox: Iterable[tuple[SiteId, Any]]) -> None:
        for site_id, message in outbox:
            self.messages += 1
            if site_id in self.sites and site_id not in self.cut_off:
                self.up(site_id, self.sites[site_id].receive(message))

    def add(self, site_id: SiteId, label: str, n: int) -> None:
        if n > 0 and self.total + n < MAX_TOTAL:
            self.truth[label] += n
            self.hidden[site_id, label] += n
            self.untold[site_id] += n
            self.up(site_id, self.sites[site_id].add(label, n))

    def hide(self, site_id: SiteId, label: str, less: int = 0) -> None:
        """As many events of a label as the site keeps to itself, as far as what it was sent shows."""
        site = self.sites[site_id]
        room = site.steps.total - 1 - self.untold[site_id]
        if not self.setting.buckets:
            room = min(room, site.steps.label - 1 - self.hidden[site_id, label])
        self.add(site_id, label, room - less)

    def _sent(self, site_id: SiteId, message: LabelReport | Totals) -> None:
        self.untold[site_id] = 0
        for label, _ in message.counts if isinstance(message, LabelReport) else ():
            self.hidden[site_id, label] = 0

    def new_label(self) -> str:
        self.fresh += 1
        return str(100 + self.fresh)

    def join(self, *, back: SiteId | None = None) -> None:
        if back is not None:
            self.cut_off.pop(back, None)
            outbox = self._hello(back)
        elif len(self.sites) < MAX_SITES:
            self.joined += 1
            site_id = SiteId(1000 + self.joined)
            self.sites[site_id] = self.site(FAMILY)
            outbox = self._hello(site_id)
        else:
            return
        self.down(outbox)

    def _hello(self, site_id: SiteId) -> list[tuple[SiteId, Any]]:
        sync, *reports = self.sites[site_id].resume()
        self.messages += 1
        self.untold[site_id] = 0
        outbox: list[tuple[SiteId, Any]] = list(self.coordinator.join(site_id, sync))  # type: ignore[arg-type]
        self.up(site_id, reports)
        return outbox

    def leave(self, site_id: SiteId) -> None:
        if len(self.sites) > 1 and site_id not in self.cut_off:
            *reports, last = self.sites[site_id].leave()
            self.up(site_id, reports)
            self.down(self.coordinator.leave(site_id, last))  # type: ignore[arg-type]
            del self.sites[site_id]

    def restart(self) -> None:
        self.coordinator = FamilyCoordinator(FAMILY, self.rule, saved_state=self.coordinator.saved_state)
        self.down(self.coordinator.recover())
        for site_id in [*self.sites]:
            if site_id in self.cut_off:
                self.down(self.coordinator.mark_unreachable(site_id))
            else:
                self.join(back=site_id)

    def take(self, kind: int, who: int, amount: int) -> None:
        site_id = [*self.sites][who % len(self.sites)]
        site, hot = self.sites[site_id], HOT[amount % 3]
        match kind:
            case 0:
                self.add(site_id, hot, 1 + amount * amount)
            case 1 | 2:  # one label raises the total, a report at a time
                for _ in range(1 + amount % 8):
                    self.add(site_id, hot, site.steps.label if kind == 1 else site.steps.total)
            case 3:
                for each in [*self.sites][1:]:
                    for _ in range(amount % 20 + 1):
                        self.hide(each, self.new_label())
            case 4:
                for each in self.sites:
                    self.hide(each, hot)
            case 5:
                self.hide(site_id, hot, amount % 2)
            case 6:
                for _ in range(amount + 1):
                    self.hide(site_id, self.new_label())
            case 7:
                self.add(site_id, self.new_label(), 1 + amount)
            case _ if amount >= 16 or kind == 11:
                self.add(site_id, hot, max(1, self.total // (2 + amount)))
            case 8:
                self.join()
            case 9:
                self.leave(site_id)
            case 10 if amount < 4:
                self.restart()
            case 10 if site_id in self.cut_off:
                self.join(back=site_id)
            case 10:
                self.cut_off[site_id] = None
                self.down(self.coordinator.mark_unreachable(site_id))
        self.fixed = self.fixed and kind not in (8, 9, 10)
        self.check()

    def _note(self, name: str, found: float | Fraction, allowed: float | Fraction) -> None:
        if allowed > 0:
            self.ratios[name] = max(self.ratios[name], float(found / allowed))

    def _violated(self, name: str, violated: bool) -> None:
        self.ratios[name] += violated

    def check(self) -> None:
        total, coordinator = self.total, self.coordinator
        if not total:
            return
        for label, known in coordinator.known.items():
            self._violated("C78", known > self.truth[label])
        answer = coordinator.total()
        self._violated("C78", answer.lower > total)
        if self.fixed:
            self._note("C77", self.messages, most_messages(self.setting.sites, self.setting.epsilon, total))
        if coordinator.state in (State.LEARNING, State.DEGRADED):
            return
        self._violated("C75 bounds", not answer.contains(total))
        if self.setting.buckets:
            self._check_ranks()
            return
        self._note("C75 total", abs(Fraction(answer.estimate) - total), self.epsilon * total)
        for label in (*HOT, *list(self.truth)[-4:]):
            each = coordinator.answer(label)
            self._violated("C75 bounds", not each.contains(self.truth[label]))
            self._note("C75 label", each.upper - each.lower, Fraction(3, 4) * self.epsilon * total)
        for label in HOT:
            self._check_top(min(1.0, nextafter(coordinator.answer(label).upper / max(1, answer.lower), 0)))

    def _check_top(self, asked: float) -> None:
        share = Fraction(repr(asked))
        if not self.epsilon <= share <= 1:
            return
        listed = {str(each.label) for each in self.coordinator.top(asked).labels}
        self._violated("C76 missing", any(n >= share * self.total and x not in listed for x, n in self.truth.items()))
        for label in listed:
            below = share - Fraction(self.truth[label], self.total)
            self._note("C76 listed", below, (Fraction(3, 4) + 2 * share) * self.epsilon)

    def _check_ranks(self) -> None:
        """Labels are buckets: their values are what is between the edges."""
        buckets, total = Buckets(0.1), self.total
        ranks = Ranks(self.coordinator.known, self.coordinator.held_back.total, buckets)
        numbers = sorted((int(label), n) for label, n in self.truth.items() if n)
        reached = list(accumulate(n for _, n in numbers))
        for (number, n), upto in zip(numbers, reached, strict=True):
            found = ranks.rank(buckets.middle(number))
            self._violated("C81 bounds", not found.lower <= upto - n <= upto <= found.upper)
        for q in QUANTILES:
            quantile = ranks.quantile(q)
            if quantile is None:
                continue
            bucket, wanted = buckets.index(quantile.estimate), Fraction(repr(q)) * total
            true = numbers[bisect_left(reached, max(1, wanted))][0]
            low, high = buckets.edges(true)
            self._violated("C81 bounds", not quantile.lower <= low < high <= quantile.upper)
            first = sum(n for number, n in numbers if bucket is not None and number < bucket) + 1
            last = first - 1 + sum(n for number, n in numbers if number == bucket)
            far = max(first - wanted, wanted - last, Fraction(0))
            share = Fraction(repr(q))
            self._note("C81 rank", far, max(share, 1 - share) * self.epsilon * total + 1)


def play(run: Run) -> Ratios:
    world = World(SETTINGS[run[0]])
    for operation in run[1]:
        world.take(*operation)
    return world.ratios


GROUP = Group(ROWS, len(SETTINGS), KINDS, play)
