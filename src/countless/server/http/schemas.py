"""The shapes of what the API takes and gives. Handlers answer with these, and the OpenAPI document is made of them."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from countless.core.answer import State
from countless.schemes.registry import SCHEMES
from countless.server.settings import LEAST_ALPHA, LEAST_DELTA
from countless.wire.names import MAX_NAME_CHARS


def _said(description: str, **schema: Any) -> Meta:
    """For people and for the document. What is checked is checked where it is used, with a message that says more."""
    return Meta(description=description, extra_json_schema=schema)


Name = Annotated[str, _said("Printable characters.", minLength=1, maxLength=MAX_NAME_CHARS)]
Alpha = Annotated[float, _said("The error allowed.", minimum=LEAST_ALPHA, exclusiveMaximum=0.5)]
Delta = Annotated[float, _said("The probability of ever being wrong.", minimum=LEAST_DELTA, exclusiveMaximum=1)]
Scheme = Annotated[str, _said("How it is counted.", enum=list(SCHEMES))]
Adversary = Annotated[str, _said("Whom the bounds withstand.", enum=["oblivious", "adaptive", "sees-everything"])]
Cap = Annotated[int, _said("Labelled series before the overflow series.", minimum=0, maximum=(1 << 31) - 1)]
Number = int | float  # a total, or a bound of one: whole unless it cannot be
Moment = Annotated[str, _said("The time of reading, never that of a report.", format="date-time")]


class Rules(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What an operator may choose for a counter. What is left out stays as it is, or is as the settings have it."""

    alpha: Alpha | None = None
    delta: Delta | None = None
    scheme: Scheme | None = None
    adversary: Adversary | None = None
    label_cap: Cap | None = None

    def chosen(self) -> dict[str, Any]:
        """Only what was said."""
        fields = ("alpha", "delta", "scheme", "adversary", "label_cap")
        return {name: getattr(self, name) for name in fields if getattr(self, name) is not None}


class NewCounter(Rules, kw_only=True):
    """A counter with rules of its own."""

    name: Name


class PublicAnswer(Struct):
    """A total with its bounds: all that the public may know."""

    counter: str
    estimate: Number
    lower: Number
    upper: Number
    state: State
    as_of: Moment


class Both(Struct):
    """From the sites, and to them."""

    up: int
    down: int


class OperatorAnswer(PublicAnswer):
    """The answer, and what is behind it: for operators only."""

    alpha: float
    delta: float
    adversary: str
    configured_scheme: str
    label_cap: int
    scheme: str
    round: int
    sites: int
    silent: list[str]
    known: int
    messages: Both
    bytes: Both
    messages_to_double: int


class AnswerPage(Struct):
    """Some counters in the order of their names."""

    counters: list[PublicAnswer]
    next: Annotated[str | None, _said("Ask for what comes after this name; null: that is all.")]


class SiteStatus(Struct):
    """One life of one site."""

    site: str
    state: Annotated[str, _said("Whether it is there.", enum=["connected", "away", "silent"])]
    counters: int
    seconds_since_heard: float


class SiteList(Struct):
    """Every life of every site."""

    sites: list[SiteStatus]


class Forgotten(Struct):
    """How many lives were given up."""

    forgotten: int


class Live(Struct):
    """The process answers, and this is its clock."""

    live: bool
    time: str


class Ready(Struct):
    """Whether totals can be read with confidence, and if not, why."""

    ready: bool
    problems: list[str]


class Problem(Struct):
    """What went wrong, in words."""

    error: str
