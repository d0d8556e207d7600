"""`auto`: at every round start, the cheapest scheme with a proof (SPEC section 3)."""

from collections import Counter
from collections.abc import Sequence
from math import ceil, exp, expm1, log, log1p, sqrt
from typing import Any, NamedTuple

from countless.core.dice import Dice
from countless.core.ledger import Entry
from countless.core.paces import Growth
from countless.core.publisher import Budget, Case, Opening, Scheme, Stay
from countless.planning.plan import RoundPlan
from countless.schemes.calibrated import Calibrated, worth_having, worth_having_from
from countless.schemes.deterministic import Deterministic, Growing
from countless.schemes.dithered import Dithered
from countless.schemes.lattice import Lattice
from countless.schemes.sampled import Sampled

# `partial_dp` is missing on purpose: in either calibration it costs more than `deterministic` or `dithered` for every
# number of sites (`countless plan` shows it), so asking for its plan would only take time.
AGAINST: dict[str, tuple[type[Calibrated[Any]], ...]] = {
    "oblivious": (Lattice, Dithered, Sampled),
    "adaptive": (Dithered, Sampled),
    "sees-everything": (Sampled,),
}

HORIZON = 5.0  # e-folds of the total within which a change of scheme must have paid
PATIENCE = 1.1  # while deterministic, think again when the total has grown by this factor
CLOSING = 2.0
WINDOW = 1.25
LATE = 2
RIPE = 1.0
FREE = 0.08
BURST = 0.1
ASKS = 0.1
CAUTION = 0.3
COMPETITIVE = 1.09  # so many messages an event may be spent on telling sites a pace that will save some


class Offer(NamedTuple):
    """What a round of some scheme would cost, and how much of the total's growth it would last for."""

    messages: float  # with those that bring the sites into it
    growth: float  # in e-folds
    scheme: Calibrated[Any]
    plan: Any
    step: int
    asks: bool

    @property
    def rate(self) -> float:
        """Messages per e-fold."""
        return self.messages / self.growth


def speaking_sites(counts: Counter[int], events: float) -> float:
    """How many sites will count something while `events` happen: a site's share is what it has shown, and one more."""
    shown = sum((count + 1) * sites for count, sites in counts.items())
    return sum(sites * -expm1(-events * (count + 1) / shown) for count, sites in counts.items())


def deterministic_cost(counts: Counter[int], alpha: float, events: float) -> float:
    """Messages of deterministic sites while `events` happen, in the same shares.

    A site at n next speaks floor(2 alpha n/(1-alpha)) + 1 events later: at every event while that is 1, and then, on
    average, half an event later than without the rounding.
    """
    shown = sum((count + 1) * sites for count, sites in counts.items())
    extra, loud, cost = 2 * alpha / (1 - alpha), Growth(alpha).loud, 0.0
    for count, sites in counts.items():
        end = count + events * (count + 1) / shown
        cost += sites * max(0.0, min(end, loud) - count)
        cost += sites * max(0.0, log((extra * end + 0.5) / (extra * max(count, loud) + 0.5)) / extra)
    return cost


def next_start(plans: Sequence[RoundPlan], total: int) -> int:
    """Where a counter that has followed these plans from its first event on starts its next round after `total`.

    Short rounds are not worth following: they end as if one had begun right now.
    """
    start = min(map(worth_having_from, plans))
    if exp(_growth(plans[-1])) < PATIENCE:
        start = max(start, total)
    while start <= total:
        plan = [plan for plan in plans if worth_having(plan, plan.step(start))][-1]
        start += ceil(plan.step(start) * plan.reach)
    return start


def _growth(plan: RoundPlan) -> float:
    """E-folds of the total in a round."""
    return log1p(plan.alpha * plan.reach / plan.allowance)


class Watched(Growing):
    """Deterministic reporting, and how many messages it takes compared with what the counts let expect."""

    def __init__(self, case: Case, until: int) -> None:
        super().__init__(case.alpha, until)
        self._seen: tuple[int, int, float] | None = None
        self._joins = 0
        self.surprise = 1.0  # messages there were lately, for each that was expected
        self.newcomers = 0  # sites that came lately

    def join(self, entry: Entry) -> None:
        """One more range."""
        super().join(entry)
        self._joins += 1

    def look(self, case: Case, counts: Counter[int]) -> None:
        """Compare what was expected at an earlier look with what has come, and expect again."""
        if self._seen is not None:
            total, messages, expected = self._seen
            if case.total < WINDOW * total:
                return
            self.surprise = (case.messages - messages) / (expected * (case.total - total))
            self.newcomers = self._joins
        self._joins = 0
        events = max(1.0, (WINDOW - 1) * case.total)
        self._seen = (case.total, case.messages, deterministic_cost(counts, case.alpha, events) / events)


class Auto(Scheme):
    """Deterministic while that is cheapest - at the start, for few sites, for one busy site - else the best plan.

    It looks at the sites there are, the total, the failure budget of the round and the counts of the sites, and prices
    a round of every scheme that stands against the adversary. A change of scheme costs the sites nothing: they do not
    know which one they run. Sites that report every event are told of a round one by one, as the bill allows.

    Formal guarantees: those of the schemes it picks, all of which are safe against the adversary named; the failure
    probabilities of all rounds, whatever their schemes, sum to at most delta.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=1000, alpha=0.05, seed=1)
    >>> for i in range(200_000): tracker.site(i % 1000).add()
    >>> tracker.answer.scheme, tracker.answer.lower <= 200_000 <= tracker.answer.upper
    ('dithered', True)

    References: SPEC section 3; docs/theory/telling.md; docs/claims.md.
    """

    name = "auto"

    def __init__(self, adversary: str = "adaptive", *, patient: bool = True) -> None:
        self.safe_against = adversary
        self._schemes = [scheme(patient=patient) for scheme in AGAINST[adversary]]
        self._patient = patient

    def prepare(self, case: Case) -> None:
        """Work out the plans of the next round."""
        for scheme in self._schemes:
            scheme.prepare(self._with_reserve(case))

    def _with_reserve(self, case: Case) -> Case:
        """As many as came lately may come again: then that needs no other round."""
        if not self._is_deterministic(case):
            return case
        return case._replace(sites=max(case.sites, len(case.counts) + 2 * case.running.publisher.newcomers))

    def open(self, case: Case, dice: Dice) -> Opening | Stay:
        """The cheapest offer, unless staying deterministic is cheaper still."""
        counts = Counter(case.counts)
        if self._is_deterministic(case):
            case.running.publisher.look(case, counts)
            case = self._with_reserve(case)
        best = min(self._offers(case, counts), key=lambda offer: offer.rate, default=None)
        if best is None or self._deterministic_is_cheaper(case, counts, best):
            return self._stay_deterministic(case)
        publisher = best.scheme.publisher(best.plan, best.step, case, dice)
        budget = self._budget(case, counts, best)
        return Opening(best.scheme.name, publisher, best.scheme.slots(best.plan), best.plan, best.asks, budget)

    def _budget(self, case: Case, counts: Counter[int], best: Offer) -> Budget:
        if case.running is not None and case.running.budget is not None:
            return case.running.budget
        share = COMPETITIVE - CAUTION * case.alpha  # the estimate itself may be off by alpha
        if not self._is_deterministic(case):
            return Budget(share * case.total, case.total, share)
        events = max(1.0, 0.1 * case.total)
        rate = min(1.0, case.running.publisher.surprise) * deterministic_cost(counts, case.alpha, events) / events
        return Budget(share * case.messages, case.total, share * rate)

    def _deterministic_cost(self, case: Case, counts: Counter[int], events: float) -> float:
        """What the next events would cost deterministically: as the counts say, corrected by how wrong they lately were."""
        surprise = case.running.publisher.surprise if self._is_deterministic(case) else 1.0
        return min(events, sqrt(surprise) * deterministic_cost(counts, case.alpha, events))

    def _offers(self, case: Case, counts: Counter[int]) -> list[Offer]:
        offers = []
        now = max(case.estimate, case.total)
        for scheme in self._schemes:
            for plan in scheme.plans(case, self._patient):
                reports = plan.messages_per_efold * _growth(plan) - 2 * plan.sites
                for asks, start in ((False, case.known), (True, case.total)):
                    step = plan.step(start)
                    if not worth_having(plan, step):
                        continue
                    end = (now if asks else start) + step * plan.reach
                    if end > now:
                        messages = reports + (1 + asks) * case.unsure
                        offers.append(Offer(messages * (1 + asks * ASKS), log(end / now), scheme, plan, step, asks))
        return offers

    def _deterministic_is_cheaper(self, case: Case, counts: Counter[int], best: Offer) -> bool:
        if not self._is_deterministic(case):
            # It is due for a synchronisation in any case. Another one, to come back, must pay within a few e-folds.
            cost = deterministic_cost(counts, case.alpha, best.step * best.plan.reach)
            return (case.unsure + cost) / best.growth + 2 * case.sites / HORIZON <= best.rate
        # Rounds end with a burst of messages. Whoever starts them where a counter would that had run this scheme from
        # its first event on is never a burst ahead of it: so wait for its next start, unless a round now would cost
        # less than waiting does. Sites that are silent at times must be asked to begin with, the others only told.
        span = best.step * best.plan.reach
        heard = sum(sites for count, sites in counts.items() if count)
        if heard <= FREE * case.messages:
            return not self._pays(case, counts, best, span)
        start = next_start(best.scheme.plans(case, self._patient), case.total) - case.total
        if self._pays(case, counts, best, start):
            return False
        # ... or unless too few events are left then for telling all sites while they still report every event.
        late = (case.total + start) / heard > Growth(case.alpha).loud - LATE
        dear = heard > BURST * (case.messages + self._deterministic_cost(case, counts, start))
        exact = case.unsure < 0.1 * heard
        ripe = best.step * case.total >= RIPE * (case.total + span)
        return not (late and dear and exact and ripe and self._pays(case, counts, best, span))

    def _pays(self, case: Case, counts: Counter[int], best: Offer, events: float) -> bool:
        asked = case.unsure
        speaking = speaking_sites(counts, events)
        burst = (1 + best.asks) * asked
        cost = burst + (1 + 1 / best.step) * max(0.0, speaking - asked) + events / best.step
        saved = self._deterministic_cost(case, counts, events) - cost
        return saved > CLOSING * speaking and (burst <= BURST * case.messages or saved > 2 * BURST * case.messages)

    def _is_deterministic(self, case: Case) -> bool:
        return case.running is not None and isinstance(case.running.publisher, Watched)

    def _stay_deterministic(self, case: Case) -> Opening | Stay:
        until = ceil(case.total * PATIENCE) + 1
        plans = [plans for scheme in self._schemes if (plans := scheme.plans(case, self._patient))]
        if plans:
            first = min(worth_having_from(plan) for each in plans for plan in each)
            until = max(first, min(until, *(next_start(each, case.total) for each in plans)))
        if self._is_deterministic(case):
            return Stay(until)
        return Opening(Deterministic.name, Watched(case, until), asks=False)
