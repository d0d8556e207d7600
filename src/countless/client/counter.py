"""What a program holds: a counter by name, and one for each combination of labels.

A labelled series is a counter of its own, named like `requests{route="/a"}`. Label values come from outside, so there
is a cap: beyond it everything is counted in one overflow series, and the total over all series stays right.
"""

from collections.abc import Callable

from countless.client.local_counter import LocalCounter
from countless.wire.names import overflow_name, series_name, validate_name

LABEL_CAP = 2000


class Counter:
    """A counter. `add` and `inc` never block on the network and never raise because of it."""

    __slots__ = ("_cap", "_children", "_meter", "_meter_of", "add", "inc", "name", "overflow_count")

    def __init__(self, name: str, meter_of: Callable[[str], LocalCounter], cap: int = LABEL_CAP) -> None:
        self.name = name
        self.overflow_count = 0  # how often `labels` was answered with the overflow series
        self._meter_of = meter_of
        self._meter = meter_of(name)
        self._cap = cap
        self._children: dict[tuple[tuple[str, str], ...], Counter] = {}
        self.add = self._meter.add  # the meter's own method: no call in between
        self.inc = self._meter.add

    def __repr__(self) -> str:
        return f"<Counter {self.name!r}: {self._meter.count:,} counted here>"

    @property
    def count(self) -> int:
        """What this process has counted."""
        return self._meter.count

    def labels(self, /, **labels: str) -> "Counter":
        """The series with these labels, or the overflow series when there are too many."""
        key = tuple(labels.items())
        child = self._children.get(key)
        return child if child is not None else self._new_child(key)

    def _new_child(self, key: tuple[tuple[str, str], ...]) -> "Counter":
        if not key:
            return self
        ordered = tuple(sorted((name, str(value)) for name, value in key))
        name = validate_name(series_name(self.name, dict(ordered)))
        if ordered not in self._children and len(self._children) >= self._cap:
            self.overflow_count += 1
            ordered, name = ((("", ""),), overflow_name(self.name))
        return self._children.setdefault(ordered, Counter(name, self._meter_of, 0))
