"""Bounds of the messages that a budget costs; design/proofs/budgets.md proves them."""

from math import inf, log

from countless.core.budget.coordinator import SHARE_PERCENT

_SHARE = SHARE_PERCENT / 100
_ROUND = 2 / _SHARE + 2  # messages of a round, per holder: its grants, and its recall
_FALL = log(1 / _SHARE)  # how far the logarithm of the unspent units per holder falls in a round


def most_messages(holders: int, limit: int, slack: float = 0.0, *, known: bool = False) -> float:
    """At most so many messages until every holder was refused, for requests of one unit, without holds.

    `known`: `expected_holders` was the number of holders, and all of them asked before the first recall.
    """
    h = holders
    any_limit = 4 * limit + 2 * h
    within_slack = exact = inf
    if slack > 0:
        rounds = log(1 / slack) / _FALL
        if known:
            within_slack = _ROUND * h * rounds + (4 / _SHARE + 4) * h + 2
        else:
            within_slack = _ROUND * h * (rounds + 1 / _FALL + 2) + (4 / _SHARE + 2) * h + 2
    if h <= _SHARE * limit:
        rounds = log(limit / h) / _FALL
        if known:
            exact = _ROUND * h * (rounds + 1) + 2 * h
        else:
            exact = _ROUND * h * (rounds + 1 / _FALL) + (6 / _SHARE + 6) * h
    return min(any_limit, within_slack, exact)


def least_messages(sites: int, limit: int, slack: float) -> float:
    """Every protocol with the two promises of a budget sends so many on some traffic, in the mean. 0: not known."""
    if not 0 < slack < 1 or slack * limit < 2 * sites:
        return 0.0
    return max(0.0, (sites - 2.5) / 5 * log(1 / slack) - 0.5)
