"""A counter is the sum of its labelled series and of its events without labels: the sum, and the largest parts.

Every bound of a sum is the sum of the bounds. If each part is within alpha of its count, so is the sum.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from countless.core.answer import State, worst_state
from countless.core.family.answer import least_with
from countless.errors import InvalidParameter, UnknownName
from countless.server.http.answers.labels import family_top
from countless.server.http.answers.published import public_view
from countless.server.http.answers.windows import rolling_answer, window_answer
from countless.server.http.api.schemas import PublicAnswer, TopAnswer, TopRow
from countless.server.http.api.window_schemas import RateAnswer, RollingAnswer, WindowAnswer
from countless.server.http.history.history import Recorder
from countless.server.http.history.parts import label_of_family
from countless.server.http.server_view import ServerView
from countless.server.sessions.readable import Readable
from countless.server.site_server import SiteServer
from countless.wire.keys import counter_of

AnyAnswer = PublicAnswer | WindowAnswer | RollingAnswer
_Answer = TypeVar("_Answer", bound=AnyAnswer)
WATCHES_SHARE = 5  # a sum that takes a millisecond is computed every 5 ms for each watch of a sum: 20 % of a core


def find_parts(server: ServerView, name: str) -> Sequence[Readable]:
    """The parts of which a counter is the sum; a family, or a label of one. Empty: there is none."""
    label = None if name in server.by_name else label_of_family(server.by_name, name)
    return server.parts(name) if label is None else [label]


def parts_of(server: SiteServer, name: str) -> Sequence[Readable]:
    parts = find_parts(server, name)
    if not parts:
        raise UnknownName("counter", name, sorted({counter_of(each) or each for each in server.names}))
    return parts


def reading(recorder: Recorder, window: str | None, rolling: str | None) -> Callable[[Readable], AnyAnswer]:
    """Return a function that reads one part: its total, the count of a window, or of the last so many minutes."""
    if window is not None and rolling is not None:
        raise InvalidParameter("window", window, message="window can't be used with rolling")
    if window is not None:
        return lambda part: window_answer(part, window)
    if rolling is not None:
        return lambda part: rolling_answer(part, recorder, rolling)
    return public_view


def summed(name: str, answers: Sequence[_Answer]) -> _Answer:
    first = answers[0]
    if len(answers) == 1 and first.counter == name:
        return first
    total = replace(
        first,
        counter=name,
        estimate=sum(each.estimate for each in answers),
        lower=sum(each.lower for each in answers),
        upper=sum(each.upper for each in answers),
        state=worst_state(State(each.state) for each in answers),
    )
    if isinstance(total, PublicAnswer):
        return total
    since = [each.known_since for each in answers if not isinstance(each, PublicAnswer) and each.known_since]
    total.known_since = max(since, key=datetime.fromisoformat, default=None)
    if isinstance(total, WindowAnswer):
        windows = [each for each in answers if isinstance(each, WindowAnswer)]
        total.complete = all(each.complete for each in windows)
        began = [each.first_window for each in windows if each.first_window]
        total.first_window = min(began, key=datetime.fromisoformat, default=None)
    if isinstance(total, RollingAnswer):
        rates = [each.rate for each in answers if isinstance(each, RollingAnswer)]
        total.rate = RateAnswer(
            *(sum(getattr(rate, field) for rate in rates) for field in ("lower", "estimate", "upper"))
        )
    return total


async def answer_changes(server: SiteServer, name: str) -> AsyncIterator[PublicAnswer]:
    """The answer now and after every change, until the counter is deleted or the server drains."""
    last: tuple[int, int, int, str] | None = None
    now = asyncio.get_running_loop().time
    while (parts := find_parts(server, name)) and not server.draining:
        changed, began = parts[0].changed, now()
        answer = summed(name, [public_view(part) for part in parts])
        spent = now() - began
        current = (answer.estimate, answer.lower, answer.upper, answer.state)
        if current != last:
            last = current
            yield answer
        if len(parts) == 1 and parts[0].name == name:
            await changed.wait()
        else:  # to wait for any of thousands of series would cost more
            await _pause(server, spent)


async def _pause(server: SiteServer, spent_s: float) -> None:
    now, interval = asyncio.get_running_loop().time, server.tuning.sum_interval_s
    server.sum_watches += 1
    try:
        end = now() + max(interval, WATCHES_SHARE * server.sum_watches * spent_s)
        while not server.draining and (left := end - now()) > 0:
            await asyncio.sleep(min(left, interval))
    finally:
        server.sum_watches -= 1


def top_of(
    name: str, parts: Sequence[Readable], share: float, read: Callable[[Readable], AnyAnswer], window: str | None
) -> TopAnswer:
    """The top labels of a family, or the top labelled series of a counter."""
    answers, first = [read(part) for part in parts], parts[0]
    if first.labels is not None:
        return family_top(first.labels, share, window)
    if first.values is not None:
        message = f"{name!r} is a distribution of values, and has no labels: ask for its quantiles"
        raise InvalidParameter("counter", name, message=message)
    return top_answer(name, answers, share)


def top_answer(name: str, answers: Sequence[_Answer], share: float) -> TopAnswer:
    """The parts that may have this share of the sum, the largest first."""
    total = summed(name, answers)
    least = least_with(share, total.lower)
    listed = [each for each in answers if each.upper >= least]
    rows = [TopRow(each.counter, each.estimate, each.lower, each.upper, each.state) for each in listed]
    rows.sort(key=lambda row: (-row.estimate, row.counter))
    return TopAnswer(name, share, total.estimate, total.lower, total.upper, total.state, rows, total.as_of)


def parse_share(share: str) -> float:
    try:
        value = float(share[:100])
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise InvalidParameter("share", share[:100], "a number from 0 to 1, 0 excluded")
    return value
