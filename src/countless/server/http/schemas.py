"""The bodies of requests and responses. Handlers use them, and the OpenAPI document is generated from them."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from countless.core.answer import State
from countless.core.budget.amounts import MAX_AMOUNT
from countless.core.budget.coordinator import BudgetState
from countless.schemes.registry import ADVERSARIES, SCHEMES
from countless.server.settings import MAX_COUNT, MIN_ALPHA, MIN_DELTA
from countless.wire.names import MAX_NAME_CHARS


def _described(description: str, **schema: Any) -> Meta:
    """For the OpenAPI document only: values are checked where they are used, with a better message than msgspec's."""
    return Meta(description=description, extra_json_schema=schema)


Name = Annotated[str, _described("Printable characters.", minLength=1, maxLength=MAX_NAME_CHARS)]
Alpha = Annotated[float, _described("Largest relative error of an answer.", minimum=MIN_ALPHA, exclusiveMaximum=0.5)]
Delta = Annotated[
    float,
    _described("Largest probability that any answer is out of its bounds.", minimum=MIN_DELTA, exclusiveMaximum=1),
]
Scheme = Annotated[str, _described("The algorithm that decides when sites report.", enum=list(SCHEMES))]
Adversary = Annotated[str, _described("The most that the counted traffic may react to.", enum=list(ADVERSARIES))]
Cap = Annotated[int, _described("Labelled series; more go to the overflow series.", minimum=0, maximum=MAX_COUNT)]
Number = int | float  # a total or a bound: an integer if it is one
Moment = Annotated[str, _described("The time of reading, never that of a report.", format="date-time")]


class Rules(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The configuration of a counter. A field that is left out keeps its value, or its default in a new counter."""

    alpha: Alpha | None = None
    delta: Delta | None = None
    scheme: Scheme | None = None
    adversary: Adversary | None = None
    label_cap: Cap | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name in Rules.__struct_fields__ if (value := getattr(self, name)) is not None}


class NewCounter(Rules, kw_only=True):
    """A counter with its configuration."""

    name: Name


class PublicAnswer(Struct):
    """A total with its bounds: everything that the read scope may see."""

    counter: str
    estimate: Number
    lower: Number
    upper: Number
    state: State
    as_of: Moment


class UpDown(Struct):
    """`up`: from sites; `down`: to sites."""

    up: int
    down: int


class OperatorAnswer(PublicAnswer):
    """The answer with its round, sites and messages: for operators only."""

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
    messages: UpDown
    bytes: UpDown
    messages_to_double: int


class AnswerPage(Struct):
    """Counters in the order of their names."""

    counters: list[PublicAnswer]
    next: Annotated[str | None, _described("The value of `after` for the next page; null on the last page.")]


class SiteStatus(Struct):
    """One incarnation of a site."""

    site: str
    state: Annotated[str, _described("Away: disconnected. Silent: timed out.", enum=["connected", "away", "silent"])]
    counters: int
    seconds_since_heard: float


class SiteList(Struct):
    """Every incarnation of every site."""

    sites: list[SiteStatus]


class DropResult(Struct):
    """How many incarnations were dropped."""

    forgotten: int


Limit = Annotated[
    Any, _described("The units that all sites may spend together.", type="integer", minimum=1, maximum=MAX_AMOUNT)
]
Slack = Annotated[
    Any,
    _described(
        "The share of the limit that may be left when a request is refused.",
        type="number",
        minimum=0,
        exclusiveMaximum=1,
    ),
]


class NewBudget(Struct, forbid_unknown_fields=True):
    """A budget with its rule."""

    name: Name
    limit: Limit
    slack: Slack = 0.01


class BudgetRule(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What to change of a budget. A field that is left out keeps its value."""

    limit: Limit = None
    slack: Slack = None


class BudgetStatus(Struct):
    """A budget, and what the coordinator knows of its use."""

    name: str
    limit: int
    slack: float
    used_lower: Annotated[int, _described("Units spent, at least.")]
    used_upper: Annotated[int, _described("Units spent, at most: those that sites may spend without asking included.")]
    leaked: Annotated[int, _described("Units of sites that ended without a report; they count as spent.")]
    holders: Annotated[int, _described("Sites that have asked and are present.")]
    state: BudgetState


class BudgetList(Struct):
    """All budgets in the order of their names."""

    budgets: list[BudgetStatus]


class Live(Struct):
    """The process responds; `time` is its clock."""

    live: bool
    time: str


class Ready(Struct):
    """Whether totals can be trusted, and if not, why."""

    ready: bool
    problems: list[str]


class Problem(Struct):
    """An error message."""

    error: str
