"""The bodies of requests and responses. Handlers use them, and the OpenAPI document is generated from them."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from countless.core.answer import State
from countless.core.budget.amounts import MAX_AMOUNT
from countless.core.budget.coordinator import BudgetState
from countless.core.budget.rule import DEFAULT_MAX_NAMES, KINDS, MAX_NAMES, ON_LOSS, ON_UNREACHABLE
from countless.core.calendar import PERIODS
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


Seen = Annotated[str, _described("In the time zone of the windows, or UTC.", format="date-time")]
KnownSince = Annotated[
    str | None,
    _described(
        "Null, unless the span begins before what is recorded: then only what came after this time is known apart from "
        "what came before it. `lower` and `estimate` have that; `upper` allows for all that was ever counted.",
    ),
]


class Rate(Struct):
    """Events per second."""

    lower: float
    estimate: float
    upper: float


class RollingAnswer(Struct):
    """The count of a span that ends now, such as the last 15 minutes, with its bounds."""

    counter: str
    rolling: Annotated[str, _described("The length of the span, as it was asked for.")]
    start: Seen
    end: Seen
    estimate: Number
    lower: Number
    upper: Number
    state: State
    rate: Rate
    known_since: KnownSince
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


Per = Annotated[
    Any, _described("The limit is for each of these periods; null: for ever.", enum=[*PERIODS, None], default=None)
]
Zone = Annotated[
    Any, _described("The time zone of the periods.", type="string", default="UTC", examples=["Europe/Berlin"])
]
Anchor = Annotated[
    Any,
    _described(
        "At which second of a minute, minute of an hour, hour of a day or day of a month a period begins. "
        "Null: at the first. A month that is too short begins on its last day.",
        type=["integer", "null"],
        minimum=0,
        maximum=59,
    ),
]
Kind = Annotated[Any, _described("What is limited.", type="string", enum=list(KINDS))]
OnLoss = Annotated[
    Any, _described("What happens to the units of a site that is lost.", type="string", enum=list(ON_LOSS))
]
OnUnreachable = Annotated[
    Any, _described("What a site does that cannot reach the coordinator.", type="string", enum=list(ON_UNREACHABLE))
]


MaxNames = Annotated[
    Any,
    _described(
        f"For a template: how many names may follow it at the same time. {DEFAULT_MAX_NAMES:,} if left out.",
        type=["integer", "null"],
        minimum=1,
        maximum=MAX_NAMES,
    ),
]


class NewBudget(Struct, forbid_unknown_fields=True):
    """A budget with its rule. If the name ends with `/*` it is a template: its rule is for every name below it."""

    name: Name
    limit: Limit
    per: Per = None
    tz: Zone = "UTC"
    anchor: Anchor = None
    slack: Slack = 0.01
    kind: Kind = "spending"
    on_loss: OnLoss = "charge"
    on_unreachable: OnUnreachable = "refuse"
    max_names: MaxNames = None

    def rule(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "name"}


class BudgetChange(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What to change of a budget. A field that is left out, or null, keeps its value."""

    limit: Limit = None
    per: Annotated[Any, _described("Cannot be changed.")] = None
    tz: Annotated[Any, _described("Cannot be changed.")] = None
    anchor: Annotated[Any, _described("Cannot be changed.")] = None
    slack: Slack = None
    kind: Annotated[Any, _described("Cannot be changed.")] = None
    on_loss: OnLoss = None
    on_unreachable: OnUnreachable = None
    max_names: MaxNames = None

    def given(self) -> dict[str, Any]:
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


Instant = Annotated[str, _described("In the budget's time zone.", format="date-time")]


class Window(Struct):
    """The present period, by the clock of the coordinator."""

    start: Instant
    end: Annotated[str, _described("The first moment after it.", format="date-time")]


class BudgetStatus(Struct):
    """A budget, and what the coordinator knows of its use in the present period."""

    name: str
    limit: int
    per: str | None
    tz: str
    anchor: int | None
    slack: float
    kind: str
    on_loss: str
    on_unreachable: str
    window: Annotated[Window | None, _described("Null for a budget without periods.")]
    resets_at: Annotated[Instant | None, _described("When the next period begins.")]
    used_lower: Annotated[int, _described("Units spent, at least.")]
    used_upper: Annotated[int, _described("Units spent, at most: those that sites may spend without asking included.")]
    leaked: Annotated[int, _described("Units of sites that ended without a report; they count as spent.")]
    holders: Annotated[int, _described("Sites that have asked and are present.")]
    state: BudgetState
    template: Annotated[str | None, _described("The template that this name follows.")]
    max_names: Annotated[int | None, _described("Of a template: how many names may follow it at the same time.")]
    names: Annotated[int | None, _described("Of a template: how many names follow it now.")]


class BudgetList(Struct):
    """Budgets in the order of their names."""

    budgets: list[BudgetStatus]
    next: Annotated[str | None, _described("The value of `after` for the next page; null on the last page.")]


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
