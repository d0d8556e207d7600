"""Estimators and schemes: how the estimate of a round is kept, and how a scheme opens a round.

A scheme opens each round with an estimator, which has a trigger for every slot. The coordinator gives it what the sites
report, one site at a time. The estimator keeps the estimate and decides when the round ends or a site needs another
trigger. The coordinator publishes the largest estimate so far, so an estimate may fall and rise again.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import NamedTuple

from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import EveryNth, Trigger


class Effect(Enum):
    """The consequence of a report."""

    END_ROUND = "end the round"
    CHANGE_TRIGGER = "send the reporting site the trigger that it has from now on"


class Estimator(ABC):
    """Keeps the estimate of one round."""

    estimate: float = 0
    reconsider_at: int | None = None  # for rounds without an end: the total at which the scheme is asked again
    exact_below: float = 0  # every site whose count is below this reports its next event

    @abstractmethod
    def trigger(self, slot: int) -> Trigger:
        """The present trigger of the site in this slot."""

    @abstractmethod
    def start(self, entries: Sequence[Entry], departed: int) -> None:
        """The exact count of every site is `entry.round_start`; those of departed sites add up to `departed`."""

    @abstractmethod
    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        """A site went from a known count of `before` to `entry.reported`, passing `crossings` points of its trigger."""

    @abstractmethod
    def join(self, entry: Entry) -> None:
        """A site joins during the round, at the exact count `entry.round_start`."""

    @property
    def known(self) -> tuple[int, int] | None:
        """The least and the largest total that the reports allow, for estimators that hide nothing."""
        return None

    @property
    def phase(self) -> int | None:
        """The phase of the round, from 0, where the published answer moves in phases."""
        return None

    def exact_below_of(self, entry: Entry) -> float:
        """While the count of this site is below this, its trigger reports its next event."""
        return self.exact_below

    def stays_exact(self, slot: int) -> bool:
        """True if the site in this slot needs no trigger of this round while the one in force reports every event."""
        return False

    def on_resend(self, entry: Entry) -> None:  # noqa: B027 - most estimators need not know
        """The trigger of a site is sent again, because its connection was lost."""

    def on_late_start(self, entry: Entry, before: int, gain: int) -> Effect | None:
        """A site whose start was assumed adopted its trigger `gain` events later, at `entry.round_start`."""
        return self.on_report(entry, before, 0)

    def leave(self, entry: Entry, before: int) -> Effect | None:
        """A site left with the exact count `entry.reported`. Estimators that change only at crossings ignore it."""
        return None


class ExactSum(Estimator):
    """The sum of the counts: the true total while every site reports every event."""

    exact_below = inf
    _trigger = EveryNth(1)

    def __init__(self, reconsider_at: int | None = None) -> None:
        self.estimate: int = 0
        self.reconsider_at = reconsider_at

    @property
    def known(self) -> tuple[int, int]:
        return self.estimate, self.estimate

    def trigger(self, slot: int) -> Trigger:
        return self._trigger

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        self.estimate = departed + sum(entry.round_start for entry in entries)

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        self.estimate += entry.reported - before
        return Effect.END_ROUND if self.reconsider_at is not None and self.estimate >= self.reconsider_at else None

    def join(self, entry: Entry) -> None:
        self.estimate += entry.round_start

    def leave(self, entry: Entry, before: int) -> Effect | None:
        return self.on_report(entry, before, 0)


@dataclass(frozen=True, slots=True)
class RoundSetup:
    """A round as a scheme opens it."""

    scheme: str
    estimator: Estimator
    slots: int | None = None  # how many sites the round may have; None: any number
    plan: object = None  # the numbers behind it, for people and logs


class KeepRound(NamedTuple):
    """Continue the present round, without a message, and ask again when the estimate reaches `reconsider_at`."""

    reconsider_at: int


class RoundContext(NamedTuple):
    """The facts from which a scheme opens a round."""

    round: int
    sites: int  # the present ones; more if more are expected
    total: int  # a lower bound on the present total
    alpha: float
    delta: float
    counts: Sequence[int]  # the known count of each present site
    running: RoundSetup | None = None  # the round that has ended, if the scheme may keep it
    inexact: int = 0  # sites whose count is not known exactly: a new round costs a request and a snapshot for each
    reserve: int = 0  # sites that may join during the round, where some have joined lately
    joins_per_efold: float = 0.0  # how many join while the total grows by a factor e

    @property
    def slots(self) -> int:
        """Return the number of slots. Implement it in a scheme that gives each site a slot of its own."""
        return self.sites + self.reserve


class Scheme(ABC):
    """An algorithm: which triggers, which estimator, when a round ends. It holds no state of any counter."""

    name: str
    safe_against: str
    exact = False  # whether it knows every event, and so has no use for a floor

    @classmethod
    def create(cls, adversary: str, *, may_block: bool = True) -> "Scheme":
        """For a counter against this adversary. Unless it `may_block`, `open_round` must not compute a plan."""
        return cls()

    @abstractmethod
    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        """Open the next round, or keep the present one. Must be quick, because messages are waiting."""

    def needs_plan(self, sites: int) -> bool:
        """True if `prepare` has anything to do for a round of this many sites."""
        return False

    def prepare(self, context: RoundContext) -> None:  # noqa: B027 - most schemes have nothing slow to do
        """Do the slow part of `open_round(context)` ahead of time."""

    def prices(self, context: RoundContext) -> dict[str, float]:
        """Messages per e-fold of the schemes it chooses among, as far as their plans are computed: for people."""
        return {}
