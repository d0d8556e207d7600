"""What arrives is counted here, or dropped for a reason that is counted too.

**Sampled lines.** `n|c|@r` stands for `n/r` events. Fractions are carried for each series, in integers, so that at any
moment a series has counted the exact sum of all its `n/r`, rounded to the nearest whole number: no dice, no drift,
whatever the rates are and however they are mixed.

**Series.** Names and tags come from outside. Beyond `LABEL_CAP` combinations of a counter, and beyond `MOST_SERIES` of
all counters, what has labels is counted in the counter's overflow series, so that its total stays right; what would
be another counter is dropped.
"""

import logging
from collections import Counter as Tally
from collections.abc import Iterable

from countless.agent.statsd import ONE, Count, Labels, Reason, parse
from countless.client.client import Client
from countless.client.counter import Counter
from countless.errors import InvalidParameter
from countless.wire.names import series_name, validate_name

log = logging.getLogger("countless.agent")

MOST_SERIES = 20_000  # what a coordinator takes from one site, unless it was told otherwise
_HALF = ONE // 2


class Intake:
    """Between the sockets and the client."""

    def __init__(self, client: Client, prefix: str = "", most_series: int = MOST_SERIES) -> None:
        self.lines = 0
        self.overflowed = 0  # lines and adds that were counted in an overflow series
        self.dropped: Tally[Reason] = Tally(dict.fromkeys(Reason, 0))
        self._client = client
        self._prefix = prefix
        self._most_series = most_series
        self._counters: set[str] = set()
        self._series: dict[tuple[str, Labels], Counter] = {}
        self._rest: dict[str, int] = {}  # what a series has beyond its whole events, plus one half

    @property
    def series(self) -> int:
        """How many there are, labelled or not."""
        return len(self._series)

    def datagrams(self, batch: Iterable[bytes]) -> None:
        """Count what they say. Lines that are the same are read once: a batch equals its events."""
        for raw, times in Tally(b"\n".join(batch).split(b"\n")).items():
            line = raw.strip()
            if line:
                self.lines += times
                found = parse(line)
                problem = found if isinstance(found, Reason) else self._count(found, times)
                if problem:
                    self.drop(problem, line, times)

    def drop(self, reason: Reason, what: bytes, times: int = 1) -> None:
        """Not counted. The first of a kind is told, all are counted."""
        if not self.dropped[reason] and reason is not Reason.NOT_A_COUNTER:
            log.warning("dropped (%s): %r; whatever else is dropped for that is counted, not told", reason, what[:200])
        self.dropped[reason] += times

    def find(self, counter: str, labels: Labels, times: int = 1) -> Counter | Reason:
        """Where to count something that happened so many times, or why not."""
        known = self._series.get((counter, labels))
        return known if known is not None else self._new(counter, labels, times)

    def _count(self, count: Count, times: int) -> Reason | None:
        series = self.find(self._prefix + count.name, count.labels, times)
        if isinstance(series, Reason):
            return series
        whole, rest = divmod(count.amount * times + self._rest.get(series.name, _HALF), ONE)
        if whole:
            series.add(whole)
        if rest != _HALF:
            self._rest[series.name] = rest
        else:
            self._rest.pop(series.name, None)
        return None

    def _new(self, counter: str, labels: Labels, times: int) -> Counter | Reason:
        wanted = series_name(counter, dict(labels)) if labels else counter
        try:  # before the client is asked: it remembers every name it has heard
            validate_name(counter)
            validate_name(wanted)
        except InvalidParameter:
            return Reason.NAME
        full = len(self._series) >= self._most_series
        if full and counter not in self._counters:
            return Reason.TOO_MANY
        series = self._client.counter(counter)
        if labels:
            series = series.labels(overflow="true") if full else series.labels(**dict(labels))
        self._counters.add(counter)
        if series.name == wanted:
            self._series[counter, labels] = series
        else:
            self.overflowed += times
        return series
