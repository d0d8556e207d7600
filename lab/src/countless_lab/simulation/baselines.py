"""The cost of the same stream with flushes: each site sends a message per interval in which it counted something.

So the cost is the number of pairs (site, interval) with at least one event. A long stream has too many intervals to
look at: then some of them, evenly spread, are counted and the result is an estimate.
"""

from itertools import pairwise

from countless_lab.simulation.stream import Stream
from countless_lab.simulation.traces import Trace

MAX_INTERVALS = 16  # that are looked at
_MAX_WORK = 400_000  # sites times intervals: fewer intervals are looked at for large fleets


def flush_messages(stream: Stream, events: int, per_interval: float) -> int:
    """Messages for the first `events` events, if `per_interval` of them fall into one interval."""
    if per_interval <= 1:
        return events
    intervals = int(events / per_interval)
    limit = max(2, min(MAX_INTERVALS, _MAX_WORK // stream.sites))
    if intervals < limit:
        ends = [*(int(number * per_interval) for number in range(intervals + 1)), events]
        return sum(_active_sites(stream, start, end) for start, end in pairwise(ends))
    sampled = [(2 * sample + 1) * intervals // (2 * limit) for sample in range(limit)]
    active = sum(_active_sites(stream, int(n * per_interval), int((n + 1) * per_interval)) for n in sampled)
    return round(active * (events / per_interval) / limit)


def flush_messages_of_trace(trace: Trace, events: int, seconds: float) -> int:
    """Messages for the first `events` events, if an interval is so many seconds of the trace's own clock."""
    return len({(site, time // seconds) for time, site in trace.timed_events(events)})


def _active_sites(stream: Stream, start: int, end: int) -> int:
    if end - start <= 2 * stream.sites:
        return len({stream.site_at(number) for number in range(start + 1, end + 1)})
    return sum(stream.count(site, end) > stream.count(site, start) for site in range(stream.sites))
