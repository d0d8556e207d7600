"""`auto`: at every round start, the cheapest scheme with a proof (SPEC section 3)."""

from collections import Counter
from math import ceil, exp, expm1, floor, log1p
from typing import Any, NamedTuple

from countless.core.dice import Dice
from countless.core.publisher import Case, Opening, Scheme, Stay
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
TRANSIENT = 0.1  # by how much `auto` may exceed one message for each event while sites are told a new pace, for no gain


class Offer(NamedTuple):
    """What a round of some scheme would cost, and how much of the total's growth it would last for."""

    messages: float  # with two for each site that will speak in it, to synchronise
    speaking: float  # how many sites that is
    growth: float  # in e-folds
    scheme: Calibrated[Any]
    plan: Any
    step: int

    @property
    def rate(self) -> float:
        """Messages per e-fold."""
        return self.messages / self.growth


def speaking_sites(counts: Counter[int], total: int, events: float) -> float:
    """How many sites will count something while `events` happen, each keeping its share of the total."""
    return sum(sites * -expm1(-events * count / total) for count, sites in counts.items())


def deterministic_cost(counts: Counter[int], alpha: float, growth: float) -> float:
    """Messages of deterministic sites while the total grows by `growth` e-folds, each site keeping its share.

    A site at n next speaks floor(2 alpha n/(1-alpha)) + 1 events later; averaged over three points of the way.
    """
    extra = 2 * alpha / (1 - alpha)
    cost = 0.0
    for share, weight in ((0.0, 1), (0.5, 4), (1.0, 1)):
        grown = exp(growth * share)
        cost += weight * sum(
            sites * count * grown / (floor(extra * count * grown) + 1) for count, sites in counts.items()
        )
    return growth * cost / 6


class Auto(Scheme):
    """Deterministic while that is cheapest - at the start, for few sites, for one busy site - else the best plan.

    It looks at the sites there are, the total, the failure budget of the round and the counts of the sites, and prices
    a round of every scheme that stands against the adversary. A change of scheme costs the sites nothing: they do not
    know which one they run.

    Formal guarantees: those of the schemes it picks, all of which are safe against the adversary named; the failure
    probabilities of all rounds, whatever their schemes, sum to at most delta.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=1000, alpha=0.05, seed=1)
    >>> for i in range(200_000): tracker.site(i % 1000).add()
    >>> tracker.answer.scheme, tracker.answer.lower <= 200_000 <= tracker.answer.upper
    ('dithered', True)

    References: SPEC section 3; docs/claims.md.
    """

    name = "auto"

    def __init__(self, adversary: str = "adaptive", *, patient: bool = True) -> None:
        self.safe_against = adversary
        self._schemes = [scheme(patient=patient) for scheme in AGAINST[adversary]]
        self._patient = patient

    def prepare(self, case: Case) -> None:
        """Work out the plans of the next round."""
        for scheme in self._schemes:
            scheme.prepare(case)

    def open(self, case: Case, dice: Dice) -> Opening | Stay:
        """The cheapest offer, unless staying deterministic is cheaper still."""
        counts = Counter(case.counts)
        best = min(self._offers(case, counts), key=lambda offer: offer.rate, default=None)
        if best is None or self._deterministic_is_cheaper(case, counts, best):
            return self._stay_deterministic(case)
        publisher = best.scheme.publisher(best.plan, best.step, case, dice)
        return Opening(best.scheme.name, publisher, best.scheme.slots(best.plan), best.plan)

    def _offers(self, case: Case, counts: Counter[int]) -> list[Offer]:
        offers = []
        for scheme in self._schemes:
            for plan in scheme.plans(case, self._patient):
                step = plan.step(case.total)
                if worth_having(plan, step):
                    events = step * plan.reach
                    messages = plan.messages_per_efold * log1p(plan.alpha * plan.reach / plan.allowance)
                    speaking = speaking_sites(counts, case.total, events)
                    messages += 2 * (speaking - plan.sites)
                    offers.append(Offer(messages, speaking, log1p(events / case.total), scheme, plan, step))
        return offers

    def _deterministic_is_cheaper(self, case: Case, counts: Counter[int], best: Offer) -> bool:
        cost = deterministic_cost(counts, case.alpha, best.growth)
        # A change of scheme takes a synchronisation more than staying does; that must pay within a few e-folds.
        if not self._is_deterministic(case):
            return cost / best.growth + 2 * case.sites / HORIZON <= best.rate
        change = 2 * best.speaking
        if cost / best.growth <= best.rate + change / HORIZON:
            return True
        # At its next event each site still reports, is told its pace, and reports again if a point of that lies behind
        # it: 1 + 1/step messages that nothing has earned yet. The more the round will save, the larger this advance
        # on it may be.
        gain = cost / (best.messages + change)
        advance = (1 + 1 / best.step) * best.speaking / (case.total + best.speaking)
        return advance > TRANSIENT * max(1.0, gain) ** 2

    def _is_deterministic(self, case: Case) -> bool:
        return case.running is not None and isinstance(case.running.publisher, Growing)

    def _stay_deterministic(self, case: Case) -> Opening | Stay:
        until = ceil(case.total * PATIENCE) + 1
        plans = [plan for scheme in self._schemes for plan in scheme.plans(case, self._patient)]
        if plans:
            until = max(until, min(map(worth_having_from, plans)))
        return Stay(until) if self._is_deterministic(case) else Opening(Deterministic.name, Growing(case.alpha, until))
