"""What a program holds: a counter by name, and one for each combination of labels.

A labelled series is a counter of its own, named like `requests{route="/a"}`. Label values come from outside, so there
is a cap: beyond it everything is counted in one overflow series, and the total over all series stays right.
"""

from collections.abc import Callable

from countless.client.local_counter import Meter
from countless.errors import InvalidParameter, ProtocolError
from countless.wire.frames import require_name

LABEL_CAP = 2000
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def series_name(counter: str, labels: dict[str, str]) -> str:
    """The name of a labelled series, the same whatever the order.

    >>> series_name("requests", {"route": "/a", "code": "200"})
    'requests{code="200",route="/a"}'
    """
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))
    return f"{counter}{{{','.join(pairs)}}}"


def overflow_name(counter: str) -> str:
    """Where everything beyond the cap is counted."""
    return series_name(counter, {"overflow": "true"})


def valid_name(name: object) -> str:
    """A name that can travel."""
    try:
        return require_name(name, "counter")
    except ProtocolError as error:
        raise InvalidParameter("counter", name, str(error).partition("must be ")[2]) from None


class Series:
    """A counter. `add` and `inc` never block on the network and never raise because of it."""

    __slots__ = ("_cap", "_children", "_meter", "_meter_of", "add", "inc", "name", "overflowed")

    def __init__(self, name: str, meter_of: Callable[[str], Meter], cap: int = LABEL_CAP) -> None:
        self.name = name
        self.overflowed = 0  # how often `labels` was answered with the overflow series
        self._meter_of = meter_of
        self._meter = meter_of(name)
        self._cap = cap
        self._children: dict[tuple[tuple[str, str], ...], Series] = {}
        self.add = self._meter.add  # the meter's own method: no call in between
        self.inc = self._meter.add

    def __repr__(self) -> str:
        return f"<Series {self.name!r}: {self._meter.count:,} counted here>"

    @property
    def count(self) -> int:
        """What this process has counted."""
        return self._meter.count

    def labels(self, /, **labels: str) -> "Series":
        """The series with these labels, or the overflow series when there are too many."""
        key = tuple(labels.items())
        child = self._children.get(key)
        return child if child is not None else self._new_child(key)

    def _new_child(self, key: tuple[tuple[str, str], ...]) -> "Series":
        if not key:
            return self
        ordered = tuple(sorted((name, str(value)) for name, value in key))
        name = valid_name(series_name(self.name, dict(ordered)))
        if ordered not in self._children and len(self._children) >= self._cap:
            self.overflowed += 1
            ordered, name = ((("", ""),), overflow_name(self.name))
        return self._children.setdefault(ordered, Series(name, self._meter_of, 0))
