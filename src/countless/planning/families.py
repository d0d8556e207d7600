"""A bound of the messages that a family costs: theorem 3 of design/proofs/families.md."""

from math import log

from countless.core.family.rule import GROWTH, LABEL_SHARE, TOTAL_SHARE


def most_messages(sites: int, epsilon: float, total: int) -> float:
    """For a fixed fleet, until so many events were counted, whatever their labels are.

    >>> round(most_messages(100, 0.01, 1_000_000))
    130381
    """
    messages, rounds = 0.0, 0.0
    for share in (float(LABEL_SHARE) * epsilon, float(TOTAL_SHARE) * epsilon):
        per_event = share / (float(GROWTH) * (1 + 2 * epsilon) * sites)
        messages += 1 + (1 + max(0.0, log(per_event * max(1, total)))) / per_event
        rounds += 6 + max(0.0, log(max(1, share * total / sites))) / log(GROWTH)
    return min(messages, total) + sites * rounds
