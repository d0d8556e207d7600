"""The rule of a budget, as an operator chose it: how much may be spent, in which period, and what happens at a loss."""

from dataclasses import dataclass

from countless.core.budget.amounts import require_amount, require_slack
from countless.core.calendar import Calendar, calendar_of, require_calendar
from countless.core.parameters import require_duration
from countless.errors import InvalidParameter

SPENDING, IN_FLIGHT = KINDS = ("spending", "in_flight")
CHARGE, FREE = ON_LOSS = ("charge", "free")
DEFAULT_MAX_NAMES = 10_000
MAX_NAMES = 100_000  # each takes about 3 kB at the coordinator
REFUSE, WAIT, OVERDRAFT = ON_UNREACHABLE = ("refuse", "wait", "overdraft")
MIN_ROLLING, MAX_ROLLING = "1s", "366d"
MIN_LEASE_S = 60.0  # a short restart of the coordinator stops no site


@dataclass(frozen=True, slots=True)
class BudgetRule:
    """The rule of a budget: all sites together spend at most `limit` units, in each period or rolling interval.

    | field            | value       | effect                                                                          |
    |------------------|-------------|---------------------------------------------------------------------------------|
    | `kind`           | `spending`  | units are spent permanently                                                     |
    |                  | `in_flight` | units are only held: a limit on what runs at the same time                      |
    | `on_loss`        | `charge`    | the limit of a site that ended without handing in its units counts as spent     |
    |                  | `free`      | what it has not reported is free; the limit may be exceeded by that             |
    | `on_unreachable` | `refuse`    | a site without a connection spends what it was granted, then refuses            |
    |                  | `wait`      | ... then its requests wait for the connection, however long that takes          |
    |                  | `overdraft` | ... then it keeps spending and reports later; the limit may be exceeded         |

    >>> BudgetRule(50_000_000, per="month", tz="Europe/Berlin", anchor=31).calendar
    Calendar('month', 'Europe/Berlin', 31)
    """

    limit: int
    per: str | None = None
    tz: str = "UTC"
    anchor: int | None = None
    slack: float = 0.01
    kind: str = "spending"
    on_loss: str = "charge"
    on_unreachable: str = "refuse"
    max_names: int | None = None
    template: str | None = None
    rolling: float | None = None  # in seconds

    def __post_init__(self) -> None:
        require_amount("limit", self.limit)
        require_slack(self.slack)
        require_calendar(self.per, self.tz, self.anchor, "a budget without periods (per)")
        if self.max_names is not None:
            require_amount("max_names", self.max_names, maximum=MAX_NAMES)
        if self.kind == IN_FLIGHT and self.per is not None:
            message = "per can't be used with kind in_flight, which limits what runs at the same time"
            raise InvalidParameter("per", self.per, message=message)
        if self.rolling is not None:
            if self.per is not None or self.kind == IN_FLIGHT:
                raise InvalidParameter(
                    "rolling", self.rolling, message="rolling can't be used with per, or with kind in_flight"
                )
            length = require_duration("rolling", self.rolling, MIN_ROLLING, MAX_ROLLING)
            object.__setattr__(self, "rolling", length)
        for name, allowed in (("kind", KINDS), ("on_loss", ON_LOSS), ("on_unreachable", ON_UNREACHABLE)):
            value = getattr(self, name)
            if value not in allowed:
                raise InvalidParameter(name, value, f"one of: {', '.join(allowed)}")

    @property
    def lease(self) -> float:
        """Seconds for which a site of a rolling budget admits requests without an answer of the coordinator."""
        return max(MIN_LEASE_S, self.rolling or 0.0)

    @property
    def calendar(self) -> Calendar | None:
        """None for a budget without periods."""
        return None if self.per is None else calendar_of(self.per, self.tz, self.anchor)
