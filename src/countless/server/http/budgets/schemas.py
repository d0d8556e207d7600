"""Budgets as they are read, and the bodies of requests and responses about them."""

from collections.abc import Mapping
from typing import Annotated, Any, Protocol

from msgspec import Struct

from countless.core.budget.amounts import MAX_AMOUNT
from countless.core.budget.rule import (
    DEFAULT_MAX_NAMES,
    KINDS,
    MAX_NAMES,
    MAX_ROLLING,
    MIN_ROLLING,
    ON_LOSS,
    ON_UNREACHABLE,
    BudgetRule,
)
from countless.core.budget.state import BudgetState, HolderRow, Usage
from countless.core.calendar import Calendar
from countless.server.http.api.schemas import Anchor, Name, Per, Zone, described
from countless.server.http.server_view import ServerView
from countless.server.sessions.readable import Together


class BudgetReader(Protocol):
    """A budget in the present period."""

    @property
    def name(self) -> str: ...

    @property
    def rule(self) -> BudgetRule: ...

    @property
    def calendar(self) -> Calendar | None: ...

    @property
    def window(self) -> tuple[int, int] | None:
        """The bounds of the present period, in seconds since 1970."""

    @property
    def usage(self) -> Usage: ...

    @property
    def held(self) -> int:
        """The units that sites held when they last reported."""

    @property
    def holders(self) -> int: ...

    @property
    def holder_rows(self) -> list[HolderRow]:
        """For operators."""

    @property
    def refused_from(self) -> int | None:
        """The smallest request that a site refuses; None if none does."""

    @property
    def asks(self) -> int:
        """Requests that got in line, in all periods."""

    @property
    def recalls(self) -> int:
        """Recalls of all sites that were lent room, in all periods."""


def budgets_of(view: ServerView) -> Mapping[str, BudgetReader]:
    return Together(*(server.budgets.by_name for server in view.servers))


Limit = Annotated[
    Any, described("The units that all sites may spend together.", type="integer", minimum=1, maximum=MAX_AMOUNT)
]
Slack = Annotated[
    Any,
    described(
        "The share of the limit that may be left when a request is refused.",
        type="number",
        minimum=0,
        exclusiveMaximum=1,
    ),
]


Rolling = Annotated[
    Any,
    described(
        "At most the limit is taken in every interval of this length: a number of seconds, or a duration such as 1m, "
        f"from {MIN_ROLLING} to {MAX_ROLLING}.",
        type=["string", "number", "null"],
        examples=["1m"],
    ),
]
Kind = Annotated[Any, described("What is limited.", type="string", enum=list(KINDS))]
OnLoss = Annotated[
    Any, described("What happens to the units of a site that is lost.", type="string", enum=list(ON_LOSS))
]
OnUnreachable = Annotated[
    Any, described("What a site does that cannot reach the coordinator.", type="string", enum=list(ON_UNREACHABLE))
]


MaxNames = Annotated[
    Any,
    described(
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
    rolling: Rolling = None

    def rule(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "name"}


class BudgetChange(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The changes of a budget. A field that is left out, or null, keeps its value."""

    limit: Limit = None
    per: Annotated[Any, described("Cannot be changed.")] = None
    tz: Annotated[Any, described("Cannot be changed.")] = None
    anchor: Annotated[Any, described("Cannot be changed.")] = None
    slack: Slack = None
    kind: Annotated[Any, described("Cannot be changed.")] = None
    on_loss: OnLoss = None
    on_unreachable: OnUnreachable = None
    max_names: MaxNames = None
    rolling: Annotated[Any, described("Cannot be changed.")] = None

    def given(self) -> dict[str, Any]:
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


Instant = Annotated[str, described("In the budget's time zone.", format="date-time")]


class PeriodBounds(Struct):
    """The present period, by the clock of the coordinator."""

    start: Instant
    end: Annotated[str, described("The first moment after it.", format="date-time")]


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
    window: Annotated[PeriodBounds | None, described("Null for a budget without periods.")]
    resets_at: Annotated[Instant | None, described("When the next period begins.")]
    used_lower: Annotated[int, described("Units spent, at least.")]
    used_upper: Annotated[int, described("Units spent, at most, including units that sites may spend without asking.")]
    leaked: Annotated[int, described("Units of sites that ended without a report; they count as spent.")]
    holders: Annotated[int, described("Sites that have asked and are present.")]
    state: BudgetState
    template: Annotated[str | None, described("The template that this name follows.")]
    max_names: Annotated[int | None, described("Of a template: how many names may follow it at the same time.")]
    names: Annotated[int | None, described("Of a template: how many names follow it now.")]
    rolling: Annotated[float | None, described("The window of a rolling budget in seconds: its units come back.")]
    held: Annotated[int, described("Units that sites held when they last reported; of a rolling budget, those taken.")]


class BudgetList(Struct):
    """Budgets in the order of their names."""

    budgets: list[BudgetStatus]
    next: Annotated[str | None, described("The value of `after` for the next page; null on the last page.")]
