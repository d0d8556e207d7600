"""Answers about spans of time: windows of a counter, and rolling counts of any counter.

They are made of published answers only. So a reader who asks for the answers once a second learns the same, but for the
exact totals of closed windows: docs/understand/threat-model.md says why these reveal no secret that matters.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from countless.core.answer import State, worst_state
from countless.core.parameters import require_rolling
from countless.core.periods.rolling import count_since, narrower
from countless.core.periods.spans import SpanCount, count_between, span_named
from countless.errors import InvalidParameter, NoWindows
from countless.server.http.api.window_schemas import RateAnswer, RollingAnswer, WindowAnswer, WindowList, WindowRow
from countless.server.http.history.history import Recorder
from countless.server.http.history.parts import WindowSum, have_one_calendar
from countless.server.sessions.readable import Readable, SpanReader, WindowReader
from countless.wire.keys import counter_of

MAX_NAME_CHARS = 100  # of a window or a duration, in an error
MAX_LISTED_WINDOWS = 50_000  # of all series of a counter, in one list


def window_answer(part: Readable, which: str) -> WindowAnswer:
    """The answer about a span, by its name."""
    return span_answer(part, which)[1]


def span_answer(part: Readable, which: str) -> tuple[SpanCount, WindowAnswer]:
    """Raises NoWindows. A plus in a query that is not encoded arrives as a space."""
    if part.spans is None:
        raise _no_windows(part)
    name, now, calendar, first = which[:MAX_NAME_CHARS], part.spans.now(), part.spans.calendar, part.spans.first_window
    span = named_span(part.spans, name.replace(" ", "+") if "T" in name else name, now)
    own = part.of_span(span)
    return span, WindowAnswer(
        counter=part.name,
        window=which,
        start=calendar.local_time(span.start),
        end=calendar.local_time(span.end),
        estimate=own.estimate,
        lower=own.lower,
        upper=own.upper,
        state=_state(part.published_answer.state, span),
        complete=span.complete,
        known_since=None if span.known_since is None else calendar.local_time(span.known_since),
        as_of=_utc(now - part.health.behind_s),
        first_window=None if first is None else calendar.local_time(first),
    )


def named_span(spans: SpanReader, name: str, now: float) -> SpanCount:
    return spans.span(*span_named(name, spans.calendar, now), now)


def window_list(name: str, counters: Sequence[Readable], limit: int) -> WindowList:
    """The sums of these counters, which are the labelled series of one, for example."""
    parts = [_windows_of(each) for each in counters]
    calendar, now = parts[0].calendar, parts[0].now()
    if not have_one_calendar(parts):
        message = f"the labelled series of {name!r} have different windows: ask for one of them"
        raise InvalidParameter("counter", name, message=message)
    if limit * len(parts) > MAX_LISTED_WINDOWS:
        raise InvalidParameter(
            "limit", limit, f"at most {MAX_LISTED_WINDOWS // len(parts)}: there are {len(parts)} series"
        )
    windows = (WindowSum(parts) if len(parts) > 1 else parts[0]).youngest(limit)
    counts = [count_between([each], each.start, each.end, now) for each in windows]
    state = worst_state(each.published_answer.state for each in counters)
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
        as_of=_utc(now - counters[0].health.behind_s),
    )


def rolling_answer(counter: Readable, recorder: Recorder, rolling: str) -> RollingAnswer:
    """From the recorded answers, and from the windows if there are any."""
    if not counter.has_rolling:
        instead = "it has one count, of all time" if counter.spans is None else "ask for a window, such as now or last"
        message = f"{_whole(counter)!r} has no rolling counts: {instead}"
        raise InvalidParameter("rolling", rolling, message=message)
    length_s = require_rolling("rolling", rolling[:MAX_NAME_CHARS])
    records = recorder.for_counter(counter).records()
    now = records[-1].time
    count = count_since(records, now - length_s)
    if counter.spans is not None:
        count = narrower(count, counter.spans.span(count.start, now, now))
    return RollingAnswer(
        counter=counter.name,
        rolling=rolling,
        start=_utc(count.start),
        end=_utc(now),
        estimate=count.estimate,
        lower=count.lower,
        upper=count.upper,
        state=_state(counter.published_answer.state, count),
        rate=RateAnswer(*count.rate),
        known_since=None if count.known_since is None else _utc(count.known_since),
        as_of=_utc(now - counter.health.behind_s),
    )


def _windows_of(counter: Readable) -> WindowReader:
    if counter.windows is None and counter.spans is not None:
        message = f"{counter.name!r} is a label of family {_whole(counter)!r}, whose windows are listed"
        raise InvalidParameter("counter", counter.name, message=f"{message}; read one of the label with window=last")
    if counter.windows is None:
        raise _no_windows(counter)
    return counter.windows


def _no_windows(counter: Readable) -> NoWindows:
    if counter.has_rolling:
        return NoWindows(counter.name, counter_of(counter.name))
    return NoWindows(_whole(counter), has_rolling=False)


def _whole(counter: Readable) -> str:
    """The family, of a label."""
    return counter_of(counter.name) or counter.name


def _state(total: State, count: SpanCount) -> State:
    """That of the total, unless the count is final, or is inexact where the total is exact."""
    if count.lost:
        return State.DEGRADED
    if count.complete:
        return State.EXACT if count.exact else State.HOLDING
    return State.HOLDING if total is State.EXACT and not count.exact else total


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
