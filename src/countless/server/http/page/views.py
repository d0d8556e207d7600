"""What an open page shows: all counters, or one. A view keeps what it sent last and yields what changed since then.

Views for the read scope and for operators are different classes: a view for readers has no access to anything else.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from countless.core.answer import whole
from countless.errors import InvalidParameter
from countless.server.http.answers.increases import Row
from countless.server.http.history.counter_sums import CounterSum
from countless.server.http.history.family_parts import LabelView
from countless.server.kinds.windowed_counter import AnyAnswer, AnyCounter
from countless.server.kinds.windowed_family import AnyFamily

Event = tuple[str, dict[str, Any]]  # name and data of a server-sent event
Listed = AnyCounter | CounterSum | AnyFamily | LabelView

ROWS_PER_PAGE = 50
LIST_INTERVAL_S = 1.0


class View(Protocol):
    def changes(self) -> Iterator[Event]:
        """What changed since the last call; at the first call, everything."""

    async def wait(self) -> None: ...


def public_answer(answer: AnyAnswer) -> dict[str, Any]:
    """Everything that the read scope may see."""
    estimate, lower, upper = whole(answer.estimate, *answer.bounds)
    return {"estimate": estimate, "lower": lower, "upper": upper, "state": answer.state}


def public_bar(row: Row) -> Row:
    """Whether sites are awaited or lost, not how many."""
    *public, waiting, lost = row
    return [*public, bool(waiting), bool(lost)]


def require_sort(sort: str, sorts: tuple[str, ...], default: str) -> str:
    if sort.removeprefix("-") not in ("", *sorts):
        raise InvalidParameter("sort", sort, f"one of: {', '.join(sorts)}; a minus in front reverses the order")
    return sort or default


class SentBars:
    """Bars by their start, as they were sent last."""

    def __init__(self) -> None:
        self._rows: dict[float, Row] = {}

    def changed(self, rows: list[Row]) -> list[Row]:
        last, self._rows = self._rows, {row[0]: row for row in rows}
        return [row for row in rows if row != last.get(row[0])]
