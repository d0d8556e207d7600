"""`auto`: at every round start, the cheapest scheme with a proof (SPEC section 3)."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import ceil, exp, log, log1p
from typing import Any, NamedTuple

from countless.core.estimator import Budget, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.random_source import RandomSource
from countless.core.triggers import GeometricGrowth
from countless.planning.plan import RoundPlan
from countless.schemes.deterministic import Deterministic
from countless.schemes.dithered import Dithered
from countless.schemes.forecast import WINDOW, Watched, deterministic_cost, sites_beyond, speaking_sites
from countless.schemes.lattice import Lattice
from countless.schemes.planned import Calibrated, worth_having, worth_having_from
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
COMPETITIVE = 1.09  # so many messages for each deterministic one may be spent on telling sites a pace that saves some,
CAUTION = 0.3  # less this part of alpha: the total, and with it the bill of the others, is known to alpha only
SMALL = 0.1  # messages all at once are few if they are at most this part of all so far,
LIGHT = 0.08  # and not worth keeping step with anybody for if one for each site is at most this part
BURST = 1.1  # asking costs two messages a site at once, telling one: asking must be so much cheaper in the end
LASTING = 5  # a round lasts for about so many windows of the forecast: so many times as many sites may come in it
UNHURRIED = 2  # events of each site in which all can be told as the bill allows


class Offer(NamedTuple):
    """What a round of some scheme would cost, and how much of the total's growth it would last for."""

    messages: float  # with those that bring the sites into it
    growth: float  # in e-folds
    scheme: Calibrated[Any]
    plans: Sequence[Any]  # all of the scheme's
    plan: Any
    step: int
    asks: bool

    @property
    def rate(self) -> float:
        """Messages per e-fold."""
        return self.messages / self.growth

    @property
    def events(self) -> float:
        """About how many the round will last for."""
        events: float = self.step * self.plan.reach
        return events


def next_start(plans: Sequence[RoundPlan], total: int) -> int:
    """Where a counter that has followed these plans from its first event on starts its next round after `total`.

    Short rounds are not worth following: they end as if one had begun right now.
    """
    if exp(_growth(plans[-1])) < PATIENCE:
        start = max(min(map(worth_having_from, plans)), total)
        return start if start > total else _end(plans, start)
    starts = _starts(tuple(plans))
    while starts[-1] <= total:
        starts.append(_end(plans, starts[-1]))
    return starts[bisect_right(starts, total)]


@lru_cache(maxsize=256)
def _starts(plans: tuple[RoundPlan, ...]) -> list[int]:
    """All starts up to some total. It grows as it is asked for more: working them out anew each time takes long."""
    return [min(map(worth_having_from, plans))]


def _end(plans: Sequence[RoundPlan], start: int) -> int:
    plan = [plan for plan in plans if worth_having(plan, plan.step(start))][-1]
    return start + ceil(plan.step(start) * plan.reach)


def _growth(plan: RoundPlan) -> float:
    """E-folds of the total in a round."""
    return log1p(plan.alpha * plan.reach / plan.allowance)


def _watched(context: RoundContext) -> Watched | None:
    """The deterministic reporting that runs, if it does."""
    running = context.running.estimator if context.running is not None else None
    return running if isinstance(running, Watched) else None


class Auto(Scheme):
    """Deterministic while that is cheapest - at the start, for few sites, for one busy site - else the best plan.

    It looks at the sites there are, the total, the failure budget of the round, the counts of the sites and the bill so
    far, and prices a round of every scheme that stands against the adversary. A change of scheme costs the sites
    nothing: they do not know which one they run. Sites are told of a round, not asked for their counts, where that is
    cheaper; those that report every event are told one by one, as the bill allows. Where messages take time, let it ask
    (`asks`): then the answer says `learning` until all have answered, and does not trust counts that are on their way.

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

    def __init__(self, adversary: str = "adaptive", *, patient: bool = True, asks: bool = False) -> None:
        self.safe_against = adversary
        self._schemes = [scheme(patient=patient) for scheme in AGAINST[adversary]]
        self._patient = patient
        self._asks = asks

    def prepare(self, context: RoundContext) -> None:
        """Work out the plans of the next round."""
        for scheme in self._schemes:
            scheme.prepare(_with_reserve(context))

    def open(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        """The cheapest offer, unless staying deterministic is cheaper still."""
        counts, running = Counter(context.counts), _watched(context)
        if running is not None:
            running.look(context, counts)
            context = _with_reserve(context)
        menu = [(scheme, plans) for scheme in self._schemes if (plans := scheme.plans(context, self._patient))]
        offers = [offer for offer in _offers(context, menu) if offer.asks or not self._asks]
        best = min(offers, key=lambda offer: offer.rate * (BURST if offer.asks else 1), default=None)
        if best is None or not (
            _pays(context, counts, best) if running is None else _leaves(context, counts, running, best)
        ):
            return _stay_deterministic(context, [plans for _, plans in menu], self._asks)
        estimator = best.scheme.estimator(best.plan, best.step, context, rng)
        slots, budget = best.scheme.slots(best.plan), _budget(context, counts, running, [plans for _, plans in menu])
        return RoundSetup(best.scheme.name, estimator, slots, best.plan, best.asks, budget)


def _with_reserve(context: RoundContext) -> RoundContext:
    """As many sites as came lately may come again, and again: then that needs no other round."""
    running = _watched(context)
    if running is None:
        return context
    return context._replace(sites=max(context.sites, len(context.counts) + LASTING * running.newcomers))


def _offers(context: RoundContext, menu: list[tuple[Calibrated[Any], list[Any]]]) -> list[Offer]:
    """A round that asks starts from the present total; one that only tells, from the counts that are known."""
    now, offers = max(context.estimate, context.total), []
    for scheme, plans in menu:
        for plan in plans:
            reports = plan.messages_per_efold * _growth(plan) - 2 * plan.sites
            for asks, start in ((False, context.known), (True, context.total)):
                step = plan.step(start)
                end = (now if asks else start) + step * plan.reach
                if worth_having(plan, step) and end > now:
                    messages = reports + (1 + asks) * context.unsure
                    offers.append(Offer(messages, log(end / now), scheme, plans, plan, step, asks))
    return offers


def _pays(context: RoundContext, counts: Counter[int], best: Offer) -> bool:
    """A round is over: whether to go on with another. Coming back later, if not, must pay within a few e-folds."""
    cost = context.unsure + deterministic_cost(counts, context.alpha, best.events)
    return cost / best.growth + 2 * context.sites / HORIZON > best.rate


def _leaves(context: RoundContext, counts: Counter[int], running: Watched, best: Offer) -> bool:
    """Whether to leave deterministic reporting now.

    A round begins and ends with a burst of messages. While that weighs something, be never a burst ahead of a counter
    that has run this scheme from its first event on: leave if it pays before that one's next round starts. But do not
    wait for a start so late that the sites would have to be told all at once, beyond the count up to which they report
    every event; then leave as soon as waiting for a larger step costs more than it saves.
    """
    heard = sum(sites for count, sites in counts.items() if count)
    if heard <= LIGHT * context.messages:
        return _saves(context, counts, running, best, best.events)
    wait = next_start(best.plans, context.total) - context.total
    if _saves(context, counts, running, best, wait):
        return True
    on_late_start = sites_beyond(counts, wait, GeometricGrowth(context.alpha).exact_below - UNHURRIED)
    burst = on_late_start > SMALL * (context.messages + running.forecast(context, counts, wait))
    gradual = context.unsure <= SMALL * heard
    ripe = best.step * context.total >= context.total + best.events
    return burst and gradual and ripe and _saves(context, counts, running, best, best.events)


def _saves(context: RoundContext, counts: Counter[int], running: Watched, best: Offer, events: float) -> bool:
    """Whether such a round saves messages over so many events, with two more for each site that speaks, for its end.

    And whether its start, which comes all at once, is little beside the bill so far, or the bill would double without
    it. Told sites reply if there is a point behind them; a deterministic site is, on average, alpha of its count ahead.
    """
    speaking = speaking_sites(counts, events)
    replies = context.unsure if best.asks else min(context.unsure, context.alpha * context.total / best.step)
    burst = context.unsure + replies
    cost = burst + (1 + 1 / best.step) * max(0.0, speaking - context.unsure) + events / best.step
    saved = running.forecast(context, counts, events) - cost
    return saved > 2 * speaking and (burst <= SMALL * context.messages or saved > context.messages)


def _budget(context: RoundContext, counts: Counter[int], running: Watched | None, menu: list[list[Any]]) -> Budget:
    """A little more than the others would have had: that much may be spent on telling sites of a round."""
    if context.running is not None and context.running.budget is not None:
        return context.running.budget
    share, total = COMPETITIVE - CAUTION * context.alpha, max(1, context.total, context.estimate)
    if running is None:
        return Budget(share * total, total)
    early = tuple(_early(total, counts, plans, share) for plans in menu)
    return Budget(share * context.messages, total, running.power, also=early)


def _early(total: float, counts: Counter[int], plans: Sequence[RoundPlan], share: float) -> Budget:
    """The same beside a counter that has run these plans from its first event on, while that is in its first round.

    Every site heard of has reported, been told, and perhaps had to report at once; since then it is at its step.
    """
    start = min(map(worth_having_from, plans))
    step = min(plan.step(start) for plan in plans if worth_having(plan, plan.step(start)))
    heard = sum(sites for count, sites in counts.items() if count)
    messages = start + (2 + 1 / step) * heard + (total - start - heard) / step
    reconsider_at = _end(plans, start) if total >= start else 0
    return Budget(share * messages, total, total / step / messages, reconsider_at)


def _stay_deterministic(context: RoundContext, menu: list[list[Any]], asks: bool) -> RoundSetup | KeepRound:
    reconsider_at = ceil(context.total * PATIENCE) + 1
    if menu:
        first = ceil(min(worth_having_from(plan) for plans in menu for plan in plans) / WINDOW)
        reconsider_at = max(first, min(reconsider_at, *(next_start(plans, context.total) for plans in menu)))
    if _watched(context) is not None:
        return KeepRound(reconsider_at)
    return RoundSetup(Deterministic.name, Watched(context.alpha, reconsider_at), asks=asks)
