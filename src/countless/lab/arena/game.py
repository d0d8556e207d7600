"""The game: an adversary chooses the next events, a tracker answers, a referee who knows the truth looks
on (SPEC 7).

The rules are those of the paper's model. After every single event the adversary sees the answer, and
chooses the next event. Most adversaries only want to know *when* the answer moves, so a move says how many
events to give to one site and what may end it early; that is the same game, played faster. The game itself
skips from one report to the next: in between nothing can change but the truth, which only grows, so the
error is worst at the two ends of every silence and the referee looks at both. Nothing is sampled: the
worst error is the worst over all single events.

Uses `simulation` and the rooms below. Judges, and computes no bounds.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, NamedTuple, Protocol

from countless.errors import InvalidParameter, PlanError
from countless.randomness import SeededRandom


class Until(StrEnum):
    """What ends a move before its events are used up."""

    END = "end"
    ANSWER = "answer"
    MESSAGE = "message"


class Move(NamedTuple):
    """Give `events` events to `site`, one after the other."""

    site: int
    events: int = 1
    until: Until = Until.END


class Subject(Protocol):
    """Anything that tracks a total and can be attacked."""

    @property
    def estimate(self) -> float:
        """What the public sees."""

    @property
    def sent(self) -> int:
        """Messages so far, both directions."""

    @property
    def round(self) -> int:
        """The number of the present round."""

    @property
    def scheme(self) -> str:
        """The name of the scheme, which is public."""

    def step(self, site: int) -> int:
        """The step in force, or 0 if there is none."""

    def events_until_report(self, site: int) -> int:
        """How many events this site can take before anything is sent."""

    def add(self, site: int, n: int) -> None:
        """`n` events at one site, everything delivered."""


class View:
    """What an adversary knows: the algorithm, its own inputs, the answers.

    Round and step follow from those (plans are public and draw nothing; the adversary knows its own inputs
    and can count the answers), so they are handed over rather than worked out again by every adversary.
    Dice are not: no offset, threshold, coin, report or message count is here.
    """

    def __init__(self, subject: Subject, sites: int, alpha: float) -> None:
        self._subject = subject
        self.sites = sites
        self.alpha = alpha
        self.scheme = subject.scheme
        self.estimate = subject.estimate
        self.total = 0
        self.horizon = 0  # at how many events the game ends
        self.counts = [0] * sites
        self.taken = 0  # events of the last move
        self.jump = 0.0  # how far the answer moved during the last move
        self._spoke = False

    @property
    def changed(self) -> bool:
        """Whether the last move moved the answer."""
        return self.jump != 0

    @property
    def round(self) -> int:
        """The present round."""
        return self._subject.round

    @property
    def step(self) -> int:
        """The step of the present round, or 0 while there is none."""
        return self._subject.step(0)

    def _after(self, site: int, taken: int, estimate: float) -> None:
        self.counts[site] += taken
        self.total += taken
        self.taken = taken
        self.jump = estimate - self.estimate
        self.estimate = estimate


class FullView(View):
    """What an adversary knows that also watches the wire."""

    @property
    def messages(self) -> int:
        """The message counter."""
        return self._subject.sent

    @property
    def spoke(self) -> bool:
        """Whether the last event of the last move made a site speak."""
        return self._spoke


class Adversary(ABC):
    """Chooses events. Frozen: parameters only, so that one adversary can play any number of matches.

    Every adversary says what it `sees` ("answers" or "everything") and which strawman it is meant to beat.
    """

    name: ClassVar[str]
    sees: ClassVar[str] = "answers"
    must_beat: ClassVar[str]
    ranges: ClassVar[dict[str, tuple[float, float]]] = {}  # parameters that a search may change

    @abstractmethod
    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        """The moves, for ever; `view` is up to date when each is asked for."""


class Referee:
    """Knows the truth."""

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._exact = Fraction(repr(alpha))
        self.over = self.under = 0.0  # worst error / alpha, on either side
        self.violated_at: int | None = None

    @property
    def worst(self) -> float:
        """Worst error / alpha so far."""
        return max(self.over, self.under)

    def judge(self, estimate: float, total: int) -> None:
        """One moment."""
        error = (estimate - total) / (self._alpha * total) if total else 0.0
        if error > self.over:
            self.over = error
        elif -error > self.under:
            self.under = -error
        else:
            return
        # Schemes may sit on the very edge of the bound; floating point must not decide there.
        if self.violated_at is None and self.worst > 1 - 1e-9 and self._outside(estimate, total):
            self.violated_at = total

    def _outside(self, estimate: float, total: int) -> bool:
        # An answer is a double: it may be the one nearest to an allowed number, as the bounds here are.
        upper, lower = float((1 + self._exact) * total), float((1 - self._exact) * total)
        return not lower <= estimate <= upper


@dataclass(frozen=True, slots=True)
class Score:
    """How one game ended."""

    seed: int
    events: int
    worst: float  # worst error / alpha over all single events
    over: float  # ... of answers above the truth
    under: float
    violated_at: int | None  # the total at the first answer outside 1 ± alpha
    messages: int
    rounds: int


class Point(NamedTuple):
    """For plots: the worst signed error / alpha since the last point."""

    total: int
    error: float


class Game:
    """One adversary against one tracker."""

    def __init__(
        self, subject: Subject, adversary: Adversary, sites: int, alpha: float, rng: SeededRandom, *, path: bool = False
    ) -> None:
        kind = FullView if adversary.sees == "everything" else View
        self.subject = subject
        self._view = kind(subject, sites, alpha)
        self._full = adversary.sees == "everything"
        self._moves = adversary.moves(self._view, rng)
        self._alpha = alpha
        self.referee = Referee(alpha)
        self.path: list[Point] | None = [] if path else None

    def head_start(self, events: int) -> None:
        """So many events at every site before the adversary comes, one batch each: the start of a tracker, in which
        every event is reported, hides nothing and takes long to play. Judged only at its end.
        """
        for site in range(self._view.sites):
            self.subject.add(site, events)
            self._view._after(site, events, self.subject.estimate)
        self.referee.judge(self.subject.estimate, self._view.total)

    def play(self, events: int) -> None:
        """Until that many events have happened in all."""
        view = self._view
        view.horizon = events
        while view.total < events:
            move = next(self._moves)
            if not 0 <= move.site < view.sites or move.events < 1:
                raise InvalidParameter("move", move, f"for a site from 0 to {view.sites - 1}, of at least 1 event")
            if move.until is Until.MESSAGE and not self._full:
                raise InvalidParameter("until", move.until, "something this adversary can see: it sees answers only")
            try:
                self._feed(move, min(move.events, events - view.total))
            except PlanError:
                # Once its promise is broken, a tracker may find itself without a plan to go on with.
                # Before that: a bug.
                if self.referee.violated_at is None:
                    raise
                return

    def _feed(self, move: Move, events: int) -> None:
        subject, judge, view = self.subject, self.referee.judge, self._view
        by_answer, by_message = move.until is Until.ANSWER, move.until is Until.MESSAGE
        start, left, sent = subject.estimate, events, subject.sent if by_message else 0
        estimate, total, spoke = start, view.total, False
        while left and not spoke and not (by_answer and estimate != start):
            silent = min(subject.events_until_report(move.site), left)
            taken = min(silent + 1, left)
            judge(estimate, total + silent)
            subject.add(move.site, taken)
            total, left = total + taken, left - taken
            if taken > silent:
                estimate = subject.estimate
                judge(estimate, total)
                spoke = by_message and subject.sent != sent
            if self.path is not None:
                self.path.append(Point(total, (estimate - total) / (self._alpha * total)))
        view._spoke = spoke
        view._after(move.site, events - left, estimate)

    def score(self, seed: int) -> Score:
        """The referee's verdict so far."""
        referee, subject = self.referee, self.subject
        return Score(
            seed,
            self._view.total,
            referee.worst,
            referee.over,
            referee.under,
            referee.violated_at,
            subject.sent,
            subject.round,
        )
