"""What the same stream would cost with the usual ways to count: one message per event, or one per site and interval.

A site sends at a flush only if it has counted something since the last one, which is the cheapest honest version:
the number of pairs (site, interval) with at least one event. Long streams have too many intervals to look at all of
them: then some, evenly spread, stand for the rest, and the result is an estimate.
"""

from countless.lab.simulation.stream import Stream

INTERVALS = 16  # looked at, at most
_WORK = 400_000  # sites looked at in one question, at most: fewer intervals for large fleets


def flush_messages(stream: Stream, events: int, per_interval: float) -> int:
    """Messages for so many events, when so many fall into one interval of the whole fleet."""
    if per_interval <= 1:
        return events
    intervals = int(events / per_interval)
    most = max(2, min(INTERVALS, _WORK // stream.sites))
    if intervals < most:
        return _every_interval(stream, events, per_interval)
    seen = 0
    for sample in range(most):
        number = (2 * sample + 1) * intervals // (2 * most)
        seen += _active_sites(stream, int(number * per_interval), int((number + 1) * per_interval))
    return round(seen * (events / per_interval) / most)


def _every_interval(stream: Stream, events: int, per_interval: float) -> int:
    messages, number, start = 0, 1, 0
    while start < events:
        end = min(events, int(number * per_interval))
        messages += _active_sites(stream, start, end)
        number, start = number + 1, end
    return messages


def _active_sites(stream: Stream, start: int, end: int) -> int:
    """How many sites count something in the events start + 1 .. end."""
    if end - start <= 2 * stream.sites:
        return len({stream.site_at(number) for number in range(start + 1, end + 1)})
    return sum(stream.count(site, end) > stream.count(site, start) for site in range(stream.sites))
