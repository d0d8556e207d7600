"""Lines and adds on their way to the client: counted, or dropped for a reason that is counted.

**Sampled lines.** `n|c|@r` stands for `n/r` events. The intake carries the fraction of each series as an integer, so a
series has always counted the exact sum of its `n/r`, rounded to the nearest whole number, whatever the rates are.

**Series.** Names and tags come from outside. Beyond `LABEL_CAP` combinations of one counter, and beyond `MAX_SERIES` of
all counters, a labelled event is counted in the counter's overflow series, so that the counter's total stays right. An
event of a new counter is dropped.

**Windows.** The first rule that matches its name says whether a counter has windows. An event belongs to the window
that the agent's clock shows when its line is read.
"""

import logging
from collections import Counter as Tally
from collections.abc import Iterable

from countless.agent.rules import WindowRules
from countless.agent.statsd import SCALE, Fault, Labels, StatsdCount, parse
from countless.client.client import Client
from countless.client.counter import Counter
from countless.core.calendar import calendar_of
from countless.errors import InvalidParameter
from countless.wire.keys import COUNTER, Key, calendar_text, series_name, validate_counter, validate_name

log = logging.getLogger("countless.agent")

MAX_SERIES = 20_000  # the default limit of a coordinator for one site
_HALF = SCALE // 2
_PERIOD = 99_999_999_999  # longer than the number of any window


class Intake:
    def __init__(
        self, client: Client, prefix: str = "", max_series: int = MAX_SERIES, rules: WindowRules | None = None
    ) -> None:
        self.lines = 0
        self.overflowed = 0  # lines and adds that were counted in an overflow series
        self.dropped: Tally[Fault] = Tally(dict.fromkeys(Fault, 0))
        self._client = client
        self._prefix = prefix
        self._max_series = max_series
        self._rules = rules or WindowRules()
        self._counters: set[str] = set()
        self._series: dict[tuple[str, Labels], Counter] = {}
        self._fractions: dict[str, int] = {}  # of each series: what it has beyond whole events, plus one half

    @property
    def series(self) -> int:
        return len(self._series)

    def datagrams(self, batch: Iterable[bytes]) -> None:
        """Count the lines of some datagrams. Equal lines are parsed once."""
        for raw, times in Tally(b"\n".join(batch).split(b"\n")).items():
            line = raw.strip()
            if line:
                self.lines += times
                found = parse(line)
                problem = found if isinstance(found, Fault) else self._count(found, times)
                if problem:
                    self.drop(problem, line, times)

    def drop(self, reason: Fault, what: bytes, times: int = 1) -> None:
        """Count a dropped line under its reason. The first of each reason is logged."""
        if not self.dropped[reason] and reason is not Fault.NOT_A_COUNTER:
            log.warning("line dropped: reason=%s line=%r (logged once for each reason)", reason, what[:200])
        self.dropped[reason] += times

    def find(self, counter: str, labels: Labels, times: int = 1) -> Counter | Fault:
        """The counter to add to, or the reason why there is none."""
        known = self._series.get((counter, labels))
        return known if known is not None else self._new(counter, labels, times)

    def _count(self, count: StatsdCount, times: int) -> Fault | None:
        series = self.find(self._prefix + count.name, count.labels, times)
        if isinstance(series, Fault):
            return series
        whole, rest = divmod(count.amount * times + self._fractions.get(series.name, _HALF), SCALE)
        if whole:
            series.add(whole)
        if rest != _HALF:
            self._fractions[series.name] = rest
        else:
            self._fractions.pop(series.name, None)
        return None

    def _new(self, counter: str, labels: Labels, times: int) -> Counter | Fault:
        wanted = series_name(counter, dict(labels)) if labels else counter
        full, windows = len(self._series) >= self._max_series, self._rules.find(counter)
        try:
            validate_counter(counter)  # first, because the client keeps every name it is asked for
            calendar = "" if windows["per"] is None else calendar_text(calendar_of(**windows))
            validate_name(str(Key(COUNTER, wanted, calendar, _PERIOD)))
            if full and counter not in self._counters:
                return Fault.TOO_MANY
            series = self._client.counter(counter, **windows)
            if labels:
                series = series.labels(overflow="true") if full else series.labels(**dict(labels))
        except InvalidParameter:
            return Fault.NAME
        self._counters.add(counter)
        if series.name == wanted:
            self._series[counter, labels] = series
        else:
            self.overflowed += times
        return series
