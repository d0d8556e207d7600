"""Messages that the same events would cost with flushes, if only their number is known.

`lab/simulation/baselines.py` counts the flushes of a stream whose events are known one by one.
"""

FLUSH_PERIODS_S = (1, 15, 60)  # intervals in common use


def flush_messages(events: int, site_seconds: float, period_s: float) -> int:
    """Messages if each site sends one per period, but in all no more than there are events."""
    return min(events, round(site_seconds / period_s))
