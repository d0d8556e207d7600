"""`auto`: at every round start, the cheapest scheme that is safe against the adversary; `deterministic` if in doubt."""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import ceil, e, inf, log
from statistics import median
from typing import Any, NamedTuple

from countless.core.estimator import KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.random_source import RandomSource
from countless.planning.traffic import Group, active_sites, deterministic_messages, round_messages
from countless.schemes.deterministic import Deterministic, DeterministicEstimator
from countless.schemes.dithered import Dithered
from countless.schemes.lattice import Lattice
from countless.schemes.planned import PlannedScheme, usable, usable_from
from countless.schemes.sampled import Sampled

# `partial_dp` is missing on purpose: in either calibration it costs more than `deterministic` or `dithered` for every
# number of sites (`countless plan` shows it), so asking for its plan would only take time.
CANDIDATES: dict[str, tuple[type[PlannedScheme[Any]], ...]] = {
    "oblivious": (Lattice, Dithered, Sampled),
    "adaptive": (Dithered, Sampled),
    "sees-everything": (Sampled,),
}

MIN_SAVING = 0.15  # needed to leave `deterministic`, which is certain and has a smaller typical error
MIN_SITES_TO_PLAN = 64  # with fewer it stays deterministic unless traffic is oblivious (`countless plan`)
RECONSIDER_GROWTH = 1.1  # of the total while deterministic: often enough to leave within a tenth of the best moment


class PricedRound(NamedTuple):
    """A round that could be started now, and the messages it is expected to cost."""

    messages: float
    events: float  # how many it lasts for
    scheme: PlannedScheme[Any]


class Auto(Scheme):
    """Deterministic while that is cheapest - at the start, for few sites, for one busy site - else the best plan.

    A change of scheme costs no more than any new round: sites do not know which scheme they run.

    Formal guarantees: those of the schemes it picks, all of which are safe against the adversary named; the failure
    probabilities of all rounds, whatever their schemes, sum to at most delta.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=1000, alpha=0.05, seed=1)
    >>> for i in range(200_000): tracker.site(i % 1000).add()
    >>> tracker.answer.scheme, tracker.answer.lower <= 200_000 <= tracker.answer.upper
    ('dithered', True)
    """

    name = "auto"
    safe_against = "sees-everything"  # an instance: the adversary it was created for

    def __init__(self, adversary: str = "adaptive", *, may_block: bool = True) -> None:
        self.safe_against = adversary
        self._schemes = [scheme(may_block=may_block) for scheme in CANDIDATES[adversary]]
        self._may_block = may_block

    @classmethod
    def create(cls, adversary: str, *, may_block: bool = True) -> "Auto":
        return cls(adversary, may_block=may_block)

    def needs_plan(self, sites: int) -> bool:
        return sites >= MIN_SITES_TO_PLAN or self.safe_against == "oblivious"

    def prepare(self, context: RoundContext) -> None:
        for scheme in self._worth_planning(context):
            scheme.prepare(context)

    def prices(self, context: RoundContext) -> dict[str, float]:
        quotes = {scheme.name: scheme.quotes(context, may_block=False) for scheme in self._schemes}
        return {name: min(quote.messages_per_efold for quote in found) for name, found in quotes.items() if found}

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        """Start the cheapest round, unless `deterministic` costs about as much over the same events."""
        quotes = [(s, quote) for s in self._worth_planning(context) for quote in s.quotes(context, self._may_block)]
        usable_quotes = [(scheme, quote) for scheme, quote in quotes if usable(quote, quote.step(context.total))]
        groups = _groups(context.counts)
        rounds = [_priced(context, groups, *quoted) for quoted in usable_quotes if groups]  # none: all sites have left
        best = min(rounds, key=lambda priced: priced.messages / log(1 + priced.events / context.total), default=None)
        if best is not None and best.messages <= (1 - MIN_SAVING) * _staying(context, groups, best.events):
            for plan in reversed(best.scheme.plans(context, self._may_block)):
                if usable(plan, plan.step(context.total)):
                    estimator = best.scheme.estimator(plan, plan.step(context.total), context, rng)
                    return RoundSetup(best.scheme.name, estimator, best.scheme.slots(plan), plan)
        reconsider_at = ceil(context.total * RECONSIDER_GROWTH) + 1
        if quotes:
            reconsider_at = max(reconsider_at, min(usable_from(quote) for _, quote in quotes))
        if context.running and context.running.scheme == Deterministic.name:
            return KeepRound(reconsider_at)
        return RoundSetup(Deterministic.name, DeterministicEstimator(context.alpha, reconsider_at))

    def _worth_planning(self, context: RoundContext) -> Iterator[PlannedScheme[Any]]:
        """The schemes whose plan may be the cheapest. `prepare` is given no counts, and prices no `deterministic`."""
        cheapest, groups = inf, _groups(context.counts)
        for scheme in self._schemes if self.needs_plan(context.sites) else ():
            price = scheme.about_price(context)
            efold = (e - 1) * max(context.total, price)  # until so many no round of it pays
            if price < cheapest and (not price or not groups or price < _staying(context, groups, efold)):
                yield scheme
                for quote in scheme.quotes(context, self._may_block):
                    further = _further_rounds(context, scheme, quote, len(context.counts)) / quote.messages_per_round
                    cheapest = min(cheapest, quote.messages_per_efold * (1 + further))


def _staying(context: RoundContext, groups: list[Group], events: float) -> float:
    """Messages of `deterministic` while so many events happen."""
    # A site that joins costs a tolerance, and all reports of a site that begins at 0. It is expected to count as much
    # as the median site, in half of the time.
    joins = context.joins_per_efold * log(1 + events / max(1, context.total))
    share = median(context.counts) / 2 / max(1, sum(context.counts))
    joining = [Group(ceil(joins), share)] if share else []
    start = 0 if context.running and context.running.scheme == Deterministic.name else 2 * context.inexact
    return deterministic_messages([*groups, *joining], context.alpha, events) + joins + start


def _priced(context: RoundContext, groups: list[Group], scheme: PlannedScheme[Any], quote: Any) -> PricedRound:
    events = quote.step(context.total) * quote.steps_per_round
    # Two messages for each site that takes part. (One is enough for a site that is known exactly, but only this time:
    # a scheme is chosen for what its rounds cost again and again.)
    active = context.inexact + min(len(context.counts) - context.inexact, active_sites(groups, events))
    further = _further_rounds(context, scheme, quote, active)
    return PricedRound(round_messages(quote, groups, active) + further, events, scheme)


def _further_rounds(context: RoundContext, scheme: PlannedScheme[Any], quote: Any, active: float) -> float:
    """Messages to start others in the time of a round: where sites have slots, when those that join need more."""
    growth: float = quote.messages_per_round / quote.messages_per_efold
    slots = scheme.slots(quote)
    free = inf if slots is None else max(1, slots - len(context.counts))
    return 2 * active * max(0.0, context.joins_per_efold * growth / free - 1)


def _groups(counts: Iterable[int]) -> list[Group]:
    """Each site is expected to keep its share of the traffic.

    All sites without events together are given one event for each site with events (the estimate of Witten and Bell):
    idle sites are expected to stay idle beside one busy site, and to become active beside many.
    """
    sizes = Counter(counts)
    idle = sizes.pop(0, 0)
    busy, total = sizes.total(), sum(count * sites for count, sites in sizes.items())
    unseen = busy or 1
    total += unseen if idle else 0
    groups = [Group(sites, count / total, count) for count, sites in sizes.items()]
    return [*groups, Group(idle, unseen / idle / total)] if idle else groups
