"""Answers about spans of time: windows of a counter, and rolling counts of any counter.

They are made of published answers only: a reader who asks for the total once a second learns the same.
"""

from datetime import UTC, datetime

from countless.core.answer import State
from countless.core.durations import require_duration
from countless.core.windows.rolling import count_since
from countless.core.windows.spans import SpanCount
from countless.server.http.history import Recorder
from countless.server.http.schemas import Rate, RollingAnswer
from countless.server.sessions.windows import AnyCounter

MIN_ROLLING, MAX_ROLLING = "1s", "3660d"


def rolling_answer(counter: AnyCounter, recorder: Recorder, rolling: str) -> RollingAnswer:
    length_s = require_duration("rolling", rolling[:100], MIN_ROLLING, MAX_ROLLING)
    records = recorder.for_counter(counter).records()
    now = records[-1].time
    count = count_since(records, now - length_s)
    return RollingAnswer(
        counter=counter.name,
        rolling=rolling,
        start=_utc(count.start),
        end=_utc(now),
        estimate=count.estimate,
        lower=count.lower,
        upper=count.upper,
        state=_state(counter.published_answer.state, count),
        rate=Rate(*(number / length_s for number in (count.lower, count.estimate, count.upper))),
        known_since=None if count.known_since is None else _utc(count.known_since),
        as_of=_utc(now),
    )


def _state(total: State, count: SpanCount) -> State:
    """The count may be inexact where the total is exact now."""
    return State.HOLDING if total is State.EXACT and not count.exact else total


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
