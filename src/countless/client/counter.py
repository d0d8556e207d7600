"""A counter as a program holds it: by name, and one for each combination of labels.

A series (a counter with labels) is a counter of its own, named like `requests{route="/a"}`. Label values come from
outside, so their number has a cap: beyond it events are counted in one overflow series, and the total over all series
stays right.
"""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from countless.errors import InvalidParameter
from countless.wire.keys import is_label, overflow_name, series_name, validate_name

LABEL_CAP = 2000
P = ParamSpec("P")
T = TypeVar("T")


class Countable(Protocol):
    """A `LocalCounter`, or `LocalCounterWindows`."""

    def add(self, n: int = 1) -> None: ...

    @property
    def counted(self) -> int:
        """The number of events that this process has counted."""


class Counter:
    """A counter, from `Client.counter`. `add` and `inc` never block on the network and never raise because of it."""

    __slots__ = ("_cap", "_local", "_local_counter", "_series", "add", "inc", "name", "overflow_count")

    def __init__(self, name: str, local_counter: Callable[[str], Countable], cap: int = LABEL_CAP) -> None:
        self.name = name
        self.overflow_count = 0  # how often `labels` returned the overflow series
        self._local_counter = local_counter
        self._local = local_counter(name)
        self._cap = cap
        self._series: dict[tuple[tuple[str, str | int], ...], Counter] = {}
        self.add = self._local.add  # the bound method itself: a call in between would double the price of an event
        self.inc = self._local.add

    def __repr__(self) -> str:
        return f"<Counter {self.name!r}: {self.count:,} counted here>"

    @property
    def count(self) -> int:
        """Events this process has counted; with windows, in the current one."""
        return self._local.counted

    def count_exceptions(self, kind: type[BaseException] | tuple[type[BaseException], ...] = Exception) -> "Exceptions":
        """Count exceptions of this kind, which are raised all the same. For `with`, or as a decorator of a function."""
        return Exceptions(self, kind)

    def count_calls(self, function: Callable[P, T]) -> Callable[P, T]:
        """Count the calls of a function, failed calls included. A decorator: `@counter.count_calls`."""
        if iscoroutinefunction(function):

            @wraps(function)
            async def called_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                self.inc()
                return await function(*args, **kwargs)

            return cast(Callable[P, T], called_async)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            self.inc()
            return function(*args, **kwargs)

        return called

    def labels(self, /, **labels: str | int) -> "Counter":
        """Return the series with these labels, or the overflow series if there are too many."""
        key = tuple(labels.items())
        try:
            series = self._series.get(key)
        except TypeError:  # a list, for example
            raise InvalidParameter("labels", labels, "strings or integers") from None
        return series if series is not None else self._new_series(key)

    def _new_series(self, key: tuple[tuple[str, str | int], ...]) -> "Counter":
        if not key:
            return self
        if "{" in self.name:
            message = f"{self.name!r} has labels already: give all of them in one call of labels"
            raise InvalidParameter("labels", dict(key), message=message)
        for label, value in key:
            if not is_label(label):
                raise InvalidParameter("label", label, "letters, digits, '_', '.', '/' and '-'")
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise InvalidParameter(label, value, "a string or an integer, as the value of a label")
        ordered = tuple(sorted((name, str(value)) for name, value in key))
        name = validate_name(series_name(self.name, dict(ordered)), "counter with its labels")
        if ordered not in self._series and len(self._series) >= self._cap:
            self.overflow_count += 1
            ordered, name = ((("", ""),), overflow_name(self.name))
        return self._series.setdefault(ordered, Counter(name, self._local_counter, 0))


class Exceptions:
    """Counts the exceptions that leave a block, or a function that it decorates."""

    def __init__(self, counter: Counter, kind: type[BaseException] | tuple[type[BaseException], ...]) -> None:
        self._counter = counter
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, self._kind):
            self._counter.inc()

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        if iscoroutinefunction(function):

            @wraps(function)
            async def counted_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast(Callable[P, T], counted_async)

        @wraps(function)
        def counted(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return function(*args, **kwargs)

        return counted
