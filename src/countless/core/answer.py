"""The published answer, an estimate with bounds and a state; and a threshold that it may pass."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor
from typing import Literal, NamedTuple

from countless.core.messages import SiteName
from countless.errors import InvalidParameter


class State(StrEnum):
    """The trust that the answer deserves, and why."""

    EXACT = "exact"
    HOLDING = "holding"
    LEARNING = "learning"
    DEGRADED = "degraded"


_WORST_FIRST = (State.LEARNING, State.DEGRADED, State.HOLDING, State.EXACT)


def worst_state(states: Iterable[State]) -> State:
    """The state of a sum, from the states of its parts. Without parts it is exact."""
    return min(states, key=_WORST_FIRST.index, default=State.EXACT)


# Three facts decide the state, whatever happened before: whether every site has answered the last request for a
# snapshot, whether every site can be reached, and whether the reports allow one total only.
#       (answered, reachable, exact)
STATE_TABLE: dict[tuple[bool, bool, bool], State] = {
    (False, False, False): State.LEARNING,
    (False, False, True): State.LEARNING,
    (False, True, False): State.LEARNING,
    (False, True, True): State.LEARNING,
    (True, False, False): State.DEGRADED,
    (True, False, True): State.DEGRADED,
    (True, True, False): State.HOLDING,
    (True, True, True): State.EXACT,
}


_ROUNDING = 2.0**-50  # more than doubles can lose in an estimate, an alpha, a sum, a quotient and a product


def bounds(estimate: float, alpha: float, floor: int = 0) -> tuple[float, float]:
    """The least and the largest total n that an estimate within alpha * max(n, floor) can stand for.

    Without a floor they are estimate/(1+alpha) and estimate/(1-alpha). Rounding of doubles must not exclude a total at
    the edge. Totals are integers, so a bound that is within a rounding error of an integer is set to that integer.

    >>> 2.4 / 0.8, bounds(2.4, 0.2)
    (2.9999999999999996, (2.0, 3.0))
    >>> bounds(50, 0.1, floor=100), bounds(0, 0.1, floor=100)
    ((40.0, 60.0), (0.0, 10.0))
    """
    least, most = estimate / (1 + alpha), estimate / (1 - alpha)
    least, most = min(least, estimate - alpha * floor), max(most, estimate + alpha * floor)
    error = most * _ROUNDING  # of the largest number that was added or subtracted: a difference may be much smaller
    return float(max(0, min(least, ceil(least - error)))), float(max(most, int(most + error)))


def within(estimate: float, alpha: float, total: int, floor: int = 0) -> bool:
    """True if `estimate` is within alpha * max(total, floor) of `total`: the one definition, for answers, referees,
    benches and tests.

    >>> within(9.9, 0.1, 9), within(9.9, 0.1, 11), within(9.9, 0.1, 12)
    (True, True, False)
    """
    lower, upper = bounds(estimate, alpha, floor)
    return lower <= total <= upper


def whole(estimate: float, lower: float, upper: float) -> tuple[int, int, int]:
    """A total with its bounds as integers, which totals are: rounded, and the bounds to the outside.

    >>> whole(1000.4, 990.5, 1010.2)
    (1000, 990, 1011)
    """
    return round(estimate), floor(lower), ceil(upper)


class Answer(NamedTuple):
    """A total with its bounds: with probability 1 - delta, at every moment, lower <= truth <= upper.

    That holds against the traffic that `scheme` withstands, while no site is unreachable. `published` is the largest
    estimate so far. Readers see `estimate`: the same, moved into what the reports allow.
    """

    published: float
    alpha: float
    delta: float
    state: State
    round: int
    sites: int
    scheme: str
    silent: tuple[SiteName, ...] = ()
    floor: int = 0  # the error is at most alpha * max(truth, floor)
    known: tuple[float, float] | None = None  # the least and the largest total that the reports allow; None: a secret

    @property
    def estimate(self) -> float:
        """The total as readers see it. It is `published`, unless that is more than the reports allow."""
        if self.known is None:
            return self.published
        least, most = self.known
        return min(max(self.published, least), most)

    @property
    def lower(self) -> float:
        """The truth is at least this."""
        return self.bounds[0]

    @property
    def upper(self) -> float:
        """The truth is at most this."""
        return self.bounds[1]

    @property
    def bounds(self) -> tuple[float, float]:
        """The totals that the reports allow; where these are a secret, that alpha allows. They enclose the estimate."""
        return bounds(self.published, self.alpha, self.floor) if self.known is None else self.known

    def as_dict(self) -> dict[str, object]:
        """The fields that everyone may see, and the bounds, to log or send as JSON."""
        estimate, lower, upper = whole(self.estimate, *self.bounds)
        return {
            "estimate": estimate,
            "lower": lower,
            "upper": upper,
            "alpha": self.alpha,
            "delta": self.delta,
            "state": str(self.state),
            "sites": self.sites,
            "scheme": self.scheme,
        }

    def contains(self, total: int) -> bool:
        """True if `total` is between the bounds."""
        lower, upper = self.bounds
        return lower <= total <= upper

    def __repr__(self) -> str:
        numbers = {"estimate": self.estimate, "lower": self.lower, "upper": self.upper}
        fields = self.as_dict() | numbers | {"round": self.round, "silent": self.silent}
        return f"Answer({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def __str__(self) -> str:
        silent = f", silent: {', '.join(map(str, self.silent[:5]))}" if self.silent else ""
        silent += f" and {len(self.silent) - 5:,} more" if len(self.silent) > 5 else ""
        return (
            f"{self.estimate:,} (from {self.lower:,.0f} to {self.upper:,.0f}; {self.state}, {self.scheme}, "
            f"round {self.round}, {self.sites:,} sites{silent})"
        )


def midpoint(low: int, high: int, unit: int) -> float:
    """The integer in [low/unit, high/unit] that is nearest to the middle; the middle itself if there is none.

    Any number of the range would keep the guarantee. The middle keeps rounding errors away from the edges, and integers
    are easier to read.
    """
    nearest = (low + high + unit) // (2 * unit)
    if low <= nearest * unit <= high:
        return nearest
    above = -(-low // unit)
    return above if above * unit <= high else (low + high) / (2 * unit)


Verdict = Literal["possibly", "certainly"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that a total may pass: first possibly, then certainly.

    The true total is between the bounds of the answer. It is *possibly* over the threshold when the upper bound is, and
    *certainly* when the lower bound is. The total never falls, so a verdict stays true, and each is given once.

    >>> threshold = Threshold(1000)
    >>> threshold.verdict(950, 990), threshold.verdict(980, 1020), threshold.verdict(1001, 1041)
    (None, 'possibly', 'certainly')
    """

    over: int

    def __post_init__(self) -> None:
        if isinstance(self.over, bool) or not isinstance(self.over, int) or self.over < 0:
            raise InvalidParameter("over", self.over, "an integer, at least 0")

    def verdict(self, lower: float, upper: float) -> Verdict | None:
        return "certainly" if lower > self.over else "possibly" if upper > self.over else None

    def new_verdicts(self, last: Verdict | None, lower: float, upper: float) -> tuple[Verdict, ...]:
        """The verdicts of these bounds that follow the `last` one given: "possibly" always comes before "certainly".

        >>> Threshold(1000).new_verdicts(None, 1001, 1041), Threshold(1000).new_verdicts("possibly", 980, 1020)
        (('possibly', 'certainly'), ())
        """
        steps: tuple[Verdict, ...] = ("possibly", "certainly")
        verdict = self.verdict(lower, upper)
        reached = 0 if verdict is None else steps.index(verdict) + 1
        return steps[0 if last is None else steps.index(last) + 1 : reached]
