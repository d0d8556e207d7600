"""Publishers: what the public hears of what the ledger learns; and how a scheme opens a round.

A scheme opens each round with a publisher, which holds a pace for every slot. The coordinator tells the publisher what
it learns, one site at a time; the publisher keeps the estimate and says when the round is over or a site must be given
a new pace. The coordinator publishes the running maximum of the estimates, so a publisher may go down and up.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import EveryNth, Trigger


class Effect(NamedTuple):
    """What follows from a report: the round is over, or the site that reported must go on with another pace."""

    over: bool = False
    repace: Trigger | None = None


END_ROUND = Effect(over=True)


class Estimator(ABC):
    """Keeps the estimate of one round."""

    estimate: float = 0
    exact: bool = False  # is the estimate the truth itself?
    reconsider_at: int | None = None  # where a round has no end of its own: the total at which to ask the scheme again
    exact_below: float = 0  # a site whose count is below this reports its very next event

    @abstractmethod
    def trigger(self, slot: int) -> Trigger:
        """The pace of the site in this slot, as of now."""

    @abstractmethod
    def open(self, entries: Sequence[Entry], departed: int) -> None:
        """Every site has told its exact count, `entry.round_start`; sites that are gone add up to `departed`."""

    @abstractmethod
    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        """A site went from a known count of `before` to `entry.reported`, passing `crossings` points of its pace."""

    @abstractmethod
    def join(self, entry: Entry) -> None:
        """A site takes its slot in the middle of the round, at the exact count `entry.round_start`."""

    @property
    def phase(self) -> int | None:
        """Which phase of the round runs, from 0, where the public answer moves in phases."""
        return None

    def on_late_start(self, entry: Entry, before: int, gain: int) -> Effect | None:
        """A site that was unreachable at the start adopted its trigger `gain` events later, at `entry.round_start`."""
        return self.on_report(entry, before, 0)

    def leave(self, entry: Entry, before: int) -> Effect | None:
        """A site left with the exact count `entry.reported`. A round that freezes its estimate has nothing to do."""
        return None


class ExactSum(Estimator):
    """The sum of the counts: right to the last event while every site reports every event."""

    exact = True
    exact_below = inf
    _trigger = EveryNth(1)

    def __init__(self, reconsider_at: int | None = None) -> None:
        self.estimate: int = 0
        self.reconsider_at = reconsider_at

    def trigger(self, slot: int) -> Trigger:
        """Every event."""
        return self._trigger

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        """Start from the exact total."""
        self.estimate = departed + sum(entry.round_start for entry in entries)

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        """Add what is new."""
        self.estimate += entry.reported - before
        return END_ROUND if self.reconsider_at is not None and self.estimate >= self.reconsider_at else None

    def join(self, entry: Entry) -> None:
        """Add what it brings."""
        self.estimate += entry.round_start

    def leave(self, entry: Entry, before: int) -> Effect | None:
        """Add its last words."""
        return self.on_report(entry, before, 0)


@dataclass(frozen=True, slots=True)
class RoundSetup:
    """How a scheme opens a round."""

    scheme: str
    estimator: Estimator
    slots: int | None = None  # how many sites the round may have; None: any number
    plan: object = None  # the numbers behind it, for people and logs


class KeepRound(NamedTuple):
    """Go on as before, without a word to anybody, and ask again when the estimate reaches `until`."""

    reconsider_at: int


class RoundContext(NamedTuple):
    """What a scheme is told when it is asked to open a round."""

    round: int
    sites: int  # places to provide: the sites present, and a reserve where some have joined lately
    total: int  # a lower bound on the total, as of now
    alpha: float
    delta: float
    counts: Sequence[int]  # the known count of each site present
    running: RoundSetup | None = None  # the round that has come to its end, if it is this one's to go on with
    inexact: int = 0  # sites whose count is not known exactly: a new round costs a request and a snapshot for each


class Scheme(ABC):
    """A recipe: which paces, which publisher, when a round ends. Holds no state of any counter."""

    name: str
    safe_against: str

    @classmethod
    def create(cls, adversary: str, *, may_block: bool = True) -> "Scheme":
        """For a counter against this adversary. Unless it `may_block`, `open` must not work out a plan."""
        return cls()

    @abstractmethod
    def open(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        """Open the next round, or stay in the present one. Must be quick: messages are waiting."""

    def prepare(self, context: RoundContext) -> None:  # noqa: B027 - most schemes have nothing slow to do
        """Do the slow part of `open(case)` ahead of time."""
