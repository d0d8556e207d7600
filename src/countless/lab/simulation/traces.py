"""Traces: recorded traffic as a stream, from a CSV file with the columns `t,site`, plain or gzipped (SPEC section 6).

`t` is in seconds, never falling; `site` is any text. The whole trace is kept in memory, a few bytes for each event.
"""

import csv
import gzip
from array import array
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from countless.errors import InvalidParameter
from countless.lab.simulation.cyclic import CyclicStream

_COLUMNS = ["t", "site"]


class Trace(CyclicStream):
    """A recorded stream; every site of the file is there from the start. Read on, it begins again."""

    def __init__(self, names: list[str], owners: "array[int]", times: "array[float]") -> None:
        super().__init__(len(names), ((site, sum(1 for _ in run)) for site, run in groupby(owners)))
        self.names = names
        self._owners = owners
        self._times = times

    def moments(self, events: int) -> Iterator[tuple[float, int]]:
        """Seconds since the first event, and the site, of each of the first `events`."""
        start = self._times[0]
        for time, site in zip(self._times[:events], self._owners[:events], strict=True):
            yield time - start, site

    def flushes(self, events: int, seconds: float) -> int:
        """Messages of sites that send once in every `seconds` of the trace's own clock in which they counted."""
        start = self._times[0]
        seen = zip(self._owners[:events], self._times[:events], strict=True)
        return len({(site, (time - start) // seconds) for site, time in seen})


def read_trace(path: Path) -> Trace:
    """Read a file; what is wrong with it is said with its line."""
    names: dict[str, int] = {}
    owners, times = array("q"), array("d")
    try:
        for number, time, name in _rows(path):
            if times and time < times[-1]:
                raise InvalidParameter("trace", str(path), f"in time order; line {number} goes back to {time:g}")
            times.append(time)
            owners.append(names.setdefault(name, len(names)))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidParameter("trace", str(path), f"a readable CSV or CSV.gz file ({error})") from error
    if not owners:
        raise InvalidParameter("trace", str(path), "a file with at least one event")
    return Trace(list(names), owners, times)


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
