"""Answers about spans of time: windows of a counter, and rolling counts of any counter.

They are made of published answers only. So a reader who asks for the answers once a second learns the same, but for the
exact totals of closed windows: docs/understand/threat-model.md says why these reveal no secret that matters.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any, Protocol

from countless.core.answer import State, worst_state
from countless.core.parameters import require_rolling
from countless.core.periods.rolling import count_since, narrower
from countless.core.periods.spans import SpanCount, count_between, span_named
from countless.core.periods.window import Window, WindowState
from countless.errors import InvalidParameter, NoWindows
from countless.server.http.api.window_schemas import Rate, RollingAnswer, WindowAnswer, WindowList, WindowRow
from countless.server.http.history.counter_sums import WindowSum
from countless.server.http.history.history import Recorder
from countless.server.kinds.windowed_counter import AnyCounter
from countless.server.kinds.windowed_family import AnyFamily
from countless.server.sessions.periodic import Periodic
from countless.wire.keys import counter_of

AnyWindows = Periodic[Any]
Windowed = AnyCounter | AnyFamily | AnyWindows  # it has windows, or none


class Kept(Protocol):
    """What is kept of the windows of a counter: see `Periodic`."""

    @property
    def kept_from(self) -> int | None: ...

    @property
    def most_not_kept(self) -> int: ...

    @property
    def complete_until(self) -> int: ...


MAX_NAME_CHARS = 100  # of a window or a duration, in an error
MAX_LISTED_WINDOWS = 50_000  # of all series of a counter, in one list


def window_answer(counter: Windowed, which: str) -> WindowAnswer:
    """Of a span by its name."""
    windowed = _with_windows(counter)
    return span_answer(windowed, which, *read_span(windowed, which))


def read_span(counter: AnyWindows, which: str) -> tuple[SpanCount, float]:
    """The span of this name, and the moment of reading. A plus in a query that is not encoded arrives as a space."""
    name, now = which[:MAX_NAME_CHARS], counter.now()
    return named_span(counter, name.replace(" ", "+") if "T" in name else name, now), now


def span_answer(counter: AnyWindows, which: str, span: SpanCount, now: float) -> WindowAnswer:
    calendar = counter.calendar
    return WindowAnswer(
        counter=counter.name,
        window=which,
        start=calendar.local_time(span.start),
        end=calendar.local_time(span.end),
        estimate=span.estimate,
        lower=span.lower,
        upper=span.upper,
        state=_state(counter.published_answer.state, span),
        complete=span.complete,
        known_since=None if span.known_since is None else calendar.local_time(span.known_since),
        as_of=_utc(now - counter.health.behind_s),
        first_window=None if counter.first_window is None else calendar.local_time(counter.first_window),
    )


def named_span(counter: AnyWindows, name: str, now: float) -> SpanCount:
    start, end = span_named(name, counter.calendar, now)
    return count_of_span(counter, start, end, now, counter.windows_between(start, end))


def count_of_span(counter: Kept, start: float, end: float, now: float, windows: Sequence[Window]) -> SpanCount:
    """From windows of the counter. Those outside of the span are not needed."""
    kept_since = -inf if counter.kept_from is None else counter.kept_from
    span = count_between(windows, start, end, now, dropped=counter.most_not_kept, kept_since=kept_since)
    if span.complete and end > counter.complete_until:  # without a window there, but a site may have counted one
        return span._replace(state=WindowState.INCOMPLETE)
    return span


def window_list(name: str, counters: Sequence[Windowed], limit: int) -> WindowList:
    """The sums of these counters, which are the labelled series of one, for example."""
    parts = [_with_windows(each) for each in counters]
    calendar, now = parts[0].calendar, parts[0].now()
    if not all(part.calendar.same_as(calendar) for part in parts):
        message = f"the labelled series of {name!r} have different windows: ask for one of them"
        raise InvalidParameter("counter", name, message=message)
    if limit * len(parts) > MAX_LISTED_WINDOWS:
        raise InvalidParameter(
            "limit", limit, f"at most {MAX_LISTED_WINDOWS // len(parts)}: there are {len(parts)} series"
        )
    windows = WindowSum(parts).windows(limit)
    counts = [count_between([each], each.start, each.end, now) for each in windows]
    state = worst_state(part.published_answer.state for part in parts)
    return WindowList(
        counter=name,
        per=calendar.per,
        tz=calendar.tz,
        anchor=calendar.anchor,
        windows=[
            WindowRow(
                start=calendar.local_time(count.start),
                end=calendar.local_time(count.end),
                estimate=count.estimate,
                lower=count.lower,
                upper=count.upper,
                state=_state(state, count),
                complete=count.complete,
            )
            for count in counts
        ],
        as_of=_utc(now - parts[0].health.behind_s),
    )


def rolling_answer(counter: AnyCounter, recorder: Recorder, rolling: str) -> RollingAnswer:
    """From the recorded answers, and from the windows if there are any."""
    length_s = require_rolling("rolling", rolling[:MAX_NAME_CHARS])
    records = recorder.for_counter(counter).records()
    now = records[-1].time
    count = count_since(records, now - length_s)
    if isinstance(counter, Periodic):
        windows = counter.windows_between(count.start, now)
        count = narrower(count, count_of_span(counter, count.start, now, now, windows))
    return RollingAnswer(
        counter=counter.name,
        rolling=rolling,
        start=_utc(count.start),
        end=_utc(now),
        estimate=count.estimate,
        lower=count.lower,
        upper=count.upper,
        state=_state(counter.published_answer.state, count),
        rate=Rate(*count.rate),
        known_since=None if count.known_since is None else _utc(count.known_since),
        as_of=_utc(now - counter.health.behind_s),
    )


def _with_windows(counter: Windowed) -> AnyWindows:
    if not isinstance(counter, Periodic):
        raise NoWindows(counter.name, counter_of(counter.name))
    return counter


def _state(total: State, count: SpanCount) -> State:
    """That of the total, unless the count is final, or is inexact where the total is exact."""
    if count.lost:
        return State.DEGRADED
    if count.complete and count.exact:
        return State.EXACT
    return State.HOLDING if total is State.EXACT and not count.exact else total


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
