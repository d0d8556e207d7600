"""Everything that is counted, as the API, the page and the metrics read it.

Readers never ask what a thing is. They ask whether it has windows, labels, values or rounds: without them, it has None
there. Everything is as it was saved last, but for what is for operators only.
"""

import asyncio
from abc import abstractmethod
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import chain
from typing import Protocol, TypeVar

from countless.core.answer import Answer
from countless.core.calendar import Calendar
from countless.core.coordinator import Coordinator
from countless.core.estimator import RoundContext
from countless.core.family.answer import LabelCounts
from countless.core.family.distribution import Quantile, Rank
from countless.core.periods.spans import Kept, SpanCount
from countless.core.periods.window import TotalAnswer, Window
from countless.server.settings import Config
from countless.server.storage.health import SaveHealth

AnyAnswer = Answer | TotalAnswer


class MessageCount:
    """Messages and bytes of one counter since the coordinator started; bytes are its share of the frames."""

    __slots__ = ("began", "counted_before", "down", "down_bytes", "new", "up", "up_bytes")

    def __init__(self, counted_before: int, new: bool, began: float) -> None:
        self.began = began
        self.counted_before = counted_before
        self.new = new  # there was no such counter before
        self.up = self.down = 0
        self.up_bytes = self.down_bytes = 0.0

    def add_up(self, size: float) -> None:
        self.up += 1
        self.up_bytes += size


class SpanReader(Protocol):
    """The counts of spans of windows: one window, or several in a row."""

    @property
    def calendar(self) -> Calendar: ...

    @property
    def first_window(self) -> int | None:
        """The beginning of the first window that has a count; None if there is none, or if it is not kept."""

    def now(self) -> float: ...

    def span(self, start: float, end: float, now: float) -> SpanCount: ...


class ClosedTotals(Protocol):
    """The totals of closed windows."""

    @property
    def first(self) -> int | None:
        """The oldest period; None if there is none."""

    def total_between(self, first: int, last: int) -> int: ...

    def youngest(self, limit: int) -> Mapping[int, int]:
        """By period."""


class WindowReader(Kept, Protocol):
    """The windows of a counter or a family, or the sums of the windows of several."""

    @property
    def calendar(self) -> Calendar: ...

    @property
    def closed_windows(self) -> ClosedTotals: ...

    @property
    def adds_up(self) -> bool:
        """True if several windows together have the sum of their counts, and a closed one is exact."""

    def now(self) -> float: ...

    def youngest(self, limit: int) -> list[Window]:
        """Oldest first."""

    def unsettled_windows(self, first: int) -> list[Window]:
        """The present one and those that are not closed; from `first` on, also those that have lost sites. The counts
        of closed ones are 0 here: they are in `closed_windows`.
        """

    def sites_waited_for(self, period: int) -> list[str]:
        """For operators."""


class Readable(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def published_answer(self) -> AnyAnswer: ...

    @property
    def largest_published(self) -> float:
        """The largest total so far. It never falls, as what Prometheus calls a counter must not."""

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next change of the published answer, and when the counter is deleted."""

    @property
    def traffic(self) -> MessageCount: ...

    @property
    def health(self) -> SaveHealth: ...

    @property
    def parts(self) -> "Sequence[Readable]":
        """The counters that it is the sum of; empty if it is counted itself."""

    @property
    def has_rolling(self) -> bool:
        """True if its count of the last minutes may be asked for."""

    @property
    def spans(self) -> SpanReader | None: ...

    def of_span(self, span: SpanCount) -> SpanCount:
        """Its own part of a span of `spans`: these may be of a family, and this one label of it."""

    @property
    def windows(self) -> WindowReader | None: ...

    @property
    def labels(self) -> "LabelReader | None": ...

    @property
    def values(self) -> "ValueReader | None": ...

    @property
    def rounds(self) -> "RoundReader | None": ...


class CountsReader(Readable, Protocol):
    """Something with labels: all that was counted of each, and in spans of windows."""

    @property
    def epsilon(self) -> float: ...

    @property
    def published(self) -> LabelCounts:
        """The counts of all that was counted."""

    def labels_between(self, start: float, end: float) -> LabelCounts:
        """The counts of a span of windows. Raises NoWindows."""


class LabelReader(CountsReader, Protocol):
    """A family."""

    @property
    def published_answer(self) -> TotalAnswer: ...

    def series_name(self, label: str) -> str: ...

    def label_of(self, series: str) -> str: ...


class ValueReader(CountsReader, Protocol):
    """A distribution: its labels are buckets of values."""

    @property
    def accuracy(self) -> float: ...

    def quantiles(self, shares: Iterable[float], counts: LabelCounts) -> list[Quantile]:
        """Empty if nothing is known."""

    def rank(self, value: float, counts: LabelCounts) -> Rank: ...


class RoundReader(Readable, Protocol):
    """A counter, with how it is counted: its plan, rounds and sites. With windows, those of the present one. For
    operators only.
    """

    @property
    def spec(self) -> Config: ...

    @property
    def coordinator(self) -> Coordinator: ...

    @property
    def known_total(self) -> int:
        """The sum of all windows."""

    def next_context(self) -> RoundContext | None:
        """The context of the next plan; None if no plan would be used."""


class TotalOnly:
    """A total without windows, labels, values or rounds: the defaults of a `Readable`."""

    has_rolling = True

    @property
    @abstractmethod
    def published_answer(self) -> AnyAnswer: ...

    @property
    def largest_published(self) -> float:
        """The middle of the bounds may fall. `lower` never does."""
        return self.published_answer.bounds[0]

    @property
    def parts(self) -> Sequence[Readable]:
        return ()

    @property
    def spans(self) -> SpanReader | None:
        return None

    def of_span(self, span: SpanCount) -> SpanCount:
        return span

    @property
    def windows(self) -> WindowReader | None:
        return None

    @property
    def labels(self) -> LabelReader | None:
        return None

    @property
    def values(self) -> ValueReader | None:
        return None

    @property
    def rounds(self) -> RoundReader | None:
        return None


_T = TypeVar("_T", covariant=True)


class Together(Mapping[str, _T]):
    """Several mappings as one, which is as fast to iterate as they are: there may be 20,000 counters.

    >>> both = Together({"a": 1}, {"b": 2})
    >>> both["b"], "c" in both, list(both), dict(both.items())
    (2, False, ['a', 'b'], {'a': 1, 'b': 2})
    """

    def __init__(self, *parts: Mapping[str, _T]) -> None:
        self._parts = parts

    def __getitem__(self, name: str) -> _T:
        for part in self._parts:
            if name in part:
                return part[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def items(self) -> ItemsView[str, _T]:
        return self._merged().items()

    def values(self) -> ValuesView[_T]:
        return self._merged().values()

    def _merged(self) -> dict[str, _T]:
        merged: dict[str, _T] = {}
        for part in self._parts:
            merged.update(part.items())
        return merged
