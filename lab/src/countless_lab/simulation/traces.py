"""Recorded traffic as a stream: a CSV file with the columns `t,site`, plain or gzipped.

`t` is in seconds and never decreases; `site` is any text. The trace is kept in memory: 16 bytes or more for each event.
"""

import csv
import gzip
from array import array
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from countless.errors import InvalidParameter
from countless_lab.simulation.cyclic import CyclicStream

_COLUMNS = ["t", "site"]


class Trace(CyclicStream):
    """A recorded stream; every site of the file takes part from the start. After the last event it repeats."""

    def __init__(self, names: list[str], event_sites: "array[int]", times: "array[float]") -> None:
        super().__init__(len(names), ((site, sum(1 for _ in run)) for site, run in groupby(event_sites)))
        self.names = names
        self._event_sites = event_sites
        self._times = times

    def timed_events(self, events: int) -> Iterator[tuple[float, int]]:
        """Seconds since the first event, and the site, of each of the first `events`."""
        start = self._times[0]
        for time, site in zip(self._times[:events], self._event_sites[:events], strict=True):
            yield time - start, site


def read_trace(path: Path) -> Trace:
    names: dict[str, int] = {}
    event_sites, times = array("q"), array("d")
    try:
        for number, time, name in _rows(path):
            if times and time < times[-1]:
                raise InvalidParameter("trace", str(path), f"in time order; line {number} goes back to {time:g}")
            times.append(time)
            event_sites.append(names.setdefault(name, len(names)))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidParameter("trace", str(path), f"a readable CSV or CSV.gz file ({error})") from error
    if not event_sites:
        raise InvalidParameter("trace", str(path), "a file with at least one event")
    return Trace(list(names), event_sites, times)


def _rows(path: Path) -> Iterator[tuple[int, float, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        if next(rows, None) != _COLUMNS:
            raise InvalidParameter("trace", str(path), "a CSV file whose first line is: t,site")
        for number, row in enumerate(rows, 2):
            try:
                time, name = row
                yield number, float(time), name
            except ValueError:
                raise InvalidParameter(
                    "trace", str(path), f"a file of lines t,site; line {number} is {row!r}"
                ) from None
