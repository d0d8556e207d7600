"""The bodies of responses about windows and rolling counts."""

from typing import Annotated

from msgspec import Struct

from countless.core.answer import State
from countless.server.http.api.schemas import Moment, Seen, described

KnownSince = Annotated[
    str | None,
    described(
        "Null, unless the span begins before what is recorded: then only what came after this time is known apart from "
        "what came before it. `lower` and `estimate` have that; `upper` allows for all that was ever counted.",
    ),
]


class RateAnswer(Struct):
    """Events per second. If `known_since` is set, the estimate is over the time since then."""

    lower: float
    estimate: float
    upper: float


class WindowAnswer(Struct):
    """The count of a window, or of several together, such as today, with its bounds."""

    counter: str
    window: Annotated[str, described("As it was asked for.")]
    start: Seen
    end: Annotated[str, described("The first moment after it.", format="date-time")]
    estimate: int
    lower: int
    upper: int
    state: State
    complete: Annotated[bool, described("It is over, and every site has delivered its last count: this is final.")]
    known_since: KnownSince
    as_of: Moment
    first_window: Annotated[
        str | None,
        described(
            "When the first window of this counter began. Null if nothing was counted yet, or if it is not kept.",
            format="date-time",
        ),
    ] = None


class WindowRow(Struct):
    """One window."""

    start: Seen
    end: Annotated[str, described("The first moment after it.", format="date-time")]
    estimate: int
    lower: int
    upper: int
    state: State
    complete: bool


class WindowList(Struct):
    """The youngest windows of a counter, oldest first. Windows without events may be missing."""

    counter: str
    per: str
    tz: str
    anchor: int
    windows: list[WindowRow]
    as_of: Moment


class RollingAnswer(Struct):
    """The count of a span that ends now, such as the last 15 minutes, with its bounds."""

    counter: str
    rolling: Annotated[str, described("The length of the span, as it was asked for.")]
    start: Seen
    end: Seen
    estimate: int
    lower: int
    upper: int
    state: State
    rate: RateAnswer
    known_since: KnownSince
    as_of: Moment
