"""The cost of uneven traffic.

Traffic is groups of sites: each site of a group has the same share of the coming events, and the same count so far.
"""

from collections import Counter
from collections.abc import Iterable
from math import expm1, log, pow, sqrt
from typing import NamedTuple

from countless.planning.deterministic import DeterministicPlan
from countless.planning.dithered.plan import DitheredPlan
from countless.planning.dithered.steps import MOVED_SHARE
from countless.planning.plan import Plan, RoundPlan, least_total


class Group(NamedTuple):
    sites: int
    share: float  # of the coming events, for each of the sites
    counted: float = 0  # events so far, of each


def groups_of(weights: Iterable[float]) -> list[Group]:
    """Sites that have counted nothing yet, with shares in these proportions."""
    sizes = Counter(weights)
    total = sum(weight * sites for weight, sites in sizes.items())
    return [Group(sites, weight / total) for weight, sites in sizes.items()]


def zipf(sites: int, exponent: float) -> list[Group]:
    """The i-th site has a share proportional to 1/i^exponent; 0 is balanced traffic.

    >>> [round(group.share, 2) for group in zipf(3, 1.0)]
    [0.55, 0.27, 0.18]
    """
    return groups_of(rank**-exponent for rank in range(1, sites + 1))


def active_sites(groups: Iterable[Group], events: float) -> float:
    """About how many sites count at least one of so many events."""
    return sum(group.sites * min(1.0, group.share * events) for group in groups)


def deterministic_messages(groups: list[Group], alpha: float, events: float) -> float:
    """Messages of deterministic sites while `events` happen.

    A site's tolerance is taken to be its target, as the square root of its share: with shares f its report of n stands
    for growth * n further events, growth = 2 alpha/(1-alpha) / (sqrt(f) * sum of all sqrt(f)). So it reports again
    floor(growth * n) + 1 events later: at every event while that is 1, and then, on average, half an event later than
    without the rounding.
    """
    cost, roots = 0.0, sum(group.sites * sqrt(group.share) for group in groups)
    for sites, share, counted in groups:
        growth = 2 * alpha / (1 - alpha) / (sqrt(share) * roots)
        end, exact_below = counted + events * share, 1 / growth
        cost += sites * max(0.0, min(end, exact_below) - counted)
        cost += sites * max(0.0, log((growth * end + 0.5) / (growth * max(counted, exact_below) + 0.5)) / growth)
    return cost


def round_messages(plan: RoundPlan, groups: list[Group], active: float) -> float:
    """Messages of a round in which so many of the plan's sites take part: two for each, and the reports."""
    saved = (1 - _reports_part(groups)) * plan.steps_per_round if plan.scheme == DitheredPlan.scheme else 0.0
    return plan.messages_per_round - saved - 2 * (plan.sites - active)


def _reports_part(groups: list[Group]) -> float:
    """Reports of sites with steps as the cube roots of their expected events, over those with equal steps."""
    sites = sum(group.sites for group in groups)
    roots = [pow(MOVED_SHARE / sites + (1 - MOVED_SHARE) * group.share, 1 / 3) for group in groups]
    mean_square = sum(group.sites * root**2 for group, root in zip(groups, roots, strict=True)) / sites
    return sqrt(mean_square) * sum(group.sites * group.share / root for group, root in zip(groups, roots, strict=True))


def messages_per_efold(plan: Plan, groups: list[Group]) -> float:
    """In the long run, when every site counts something in every round."""
    if isinstance(plan, DeterministicPlan):
        return plan.messages_per_efold * sum(group.sites * sqrt(group.share) for group in groups) ** 2 / plan.sites
    if isinstance(plan, DitheredPlan):
        return round_messages(plan, groups, plan.sites) / plan.growth
    return plan.messages_per_efold


def messages_until(plan: DeterministicPlan | RoundPlan, groups: list[Group], total: float) -> float:
    """From the first event to `total`."""
    if isinstance(plan, DeterministicPlan):
        return deterministic_messages(groups, plan.alpha, total)
    now = messages = min(total, least_total(plan, 2))  # until then every event is reported
    while now < total:
        events = plan.step(int(now)) * plan.steps_per_round
        part = min(1.0, (total - now) / events)
        messages += part * round_messages(plan, groups, active_sites(groups, events))
        now += events
    return messages


def flush_messages(groups: list[Group], events: float, per_second: float, period_s: float) -> float:
    """If each site sends its count once a period in which it has counted something; events come at random."""
    active = sum(-sites * expm1(-share * per_second * period_s) for sites, share, _ in groups)
    return min(events, active * events / per_second / period_s)
