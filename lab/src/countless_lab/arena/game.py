"""The game: an adversary chooses the next events, a tracker publishes estimates, a referee judges every event.

The rules are those of the paper's model: after every single event the adversary sees the estimate and chooses the next
event. Most adversaries only need to know when the estimate changes, so a move gives several events to one site and says
what may end it early. The game skips from one report to the next: in between only the true total changes, so the error
is largest just after one report or just before the next, and both are judged.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple, Protocol

from countless.errors import InvalidParameter, PlanError
from countless.randomness import SeededRandom
from countless_lab.simulation.referee import Referee


class Until(StrEnum):
    """The condition that ends a move before its events are used up."""

    END = "end"
    ANSWER = "answer"
    MESSAGE = "message"


class Move(NamedTuple):
    site: int
    events: int = 1
    until: Until = Until.END


class Subject(Protocol):
    """Anything that tracks a total and can be attacked."""

    @property
    def estimate(self) -> float: ...

    @property
    def sent(self) -> int:
        """Messages so far, in both directions."""

    @property
    def round(self) -> int: ...

    @property
    def scheme(self) -> str:
        """The name of the scheme, which is public."""

    def step(self, site: int) -> int:
        """The step in force, or 0 if there is none."""

    def events_until_report(self, site: int) -> int:
        """The number of events this site can take before anything is sent."""

    def add(self, site: int, n: int) -> object:
        """`n` events at one site, with all messages delivered."""


class View:
    """The knowledge of an adversary: the algorithm, its own inputs, the published estimates.

    Round and step follow from these, because plans are public and use no random numbers; they are handed over so that
    no adversary has to recompute them. (Steps of sites may follow from reports of earlier rounds; the guarantees hold
    for adversaries that know them.) Offsets, thresholds, samples, reports and message counts are not here.
    """

    def __init__(self, subject: Subject, sites: int, alpha: float) -> None:
        self._subject = subject
        self.sites = sites
        self.alpha = alpha
        self.scheme = subject.scheme
        self.estimate = subject.estimate
        self.total = 0
        self.horizon = 0  # the number of events at which the game ends
        self.counts = [0] * sites
        self.taken = 0  # events of the last move
        self.jump = 0.0  # change of the estimate during the last move
        self._message_sent = False
        self._largest_step = (-1, 0)  # in this round

    @property
    def changed(self) -> bool:
        return self.jump != 0

    @property
    def round(self) -> int:
        return self._subject.round

    @property
    def step(self) -> int:
        """The largest step of any site when it was first asked for in this round."""
        if self._largest_step[0] != self.round:
            self._largest_step = self.round, max(map(self.step_of, range(self.sites)))
        return self._largest_step[1]

    def step_of(self, site: int) -> int:
        return self._subject.step(site)

    def _after(self, site: int, taken: int, estimate: float) -> None:
        self.counts[site] += taken
        self.total += taken
        self.taken = taken
        self.jump = estimate - self.estimate
        self.estimate = estimate


class FullView(View):
    @property
    def messages(self) -> int:
        return self._subject.sent

    @property
    def message_sent(self) -> bool:
        """True if the last event of the last move caused a message."""
        return self._message_sent


class Adversary(ABC):
    """Chooses events. Holds parameters only, so that one object can play any number of games.

    An adversary declares what it `sees` ("answers" or "everything") and which scheme it must beat in the tests: a
    negative control, or a scheme without a guarantee against it.
    """

    name: ClassVar[str]
    sees: ClassVar[str] = "answers"
    must_beat: ClassVar[str]
    ranges: ClassVar[dict[str, tuple[float, float]]] = {}  # parameters that the search may change

    @abstractmethod
    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        """The moves, without end; `view` is up to date when each is asked for."""


@dataclass(frozen=True, slots=True)
class Score:
    seed: int
    events: int
    worst: float  # worst error / alpha over all events
    over: float  # ... of estimates above the total
    under: float
    violated_at: int | None  # the total at the first estimate outside 1 ± alpha
    messages: int
    rounds: int
    randomised: bool  # whether the last round had secrets: not exact, deterministic or without noise


class Point(NamedTuple):
    """For plots: the signed error / alpha after a report or a move."""

    total: int
    error: float


class Game:
    def __init__(
        self, subject: Subject, adversary: Adversary, sites: int, alpha: float, rng: SeededRandom, *, path: bool = False
    ) -> None:
        self.subject = subject
        self._full = adversary.sees == "everything"
        self._view = (FullView if self._full else View)(subject, sites, alpha)
        self._moves = adversary.moves(self._view, rng)
        self._alpha = alpha
        self.referee = Referee(alpha)
        self.path: list[Point] | None = [] if path else None

    def head_start(self, events: int) -> None:
        """So many events at every site before the first move, one batch each, judged only at the end.

        At the start of a tracker every event is reported: that takes long to play and hides nothing.
        """
        for site in range(self._view.sites):
            self.subject.add(site, events)
            self._view._after(site, events, self.subject.estimate)
        self.referee.judge(self.subject.estimate, self._view.total)

    @property
    def total(self) -> int:
        return self._view.total

    def play(self, events: int) -> None:
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
                # A tracker outside its guarantee may have no plan to continue with. Inside it, this is a bug.
                if self.referee.violated_at is None:
                    raise
                return

    def _feed(self, move: Move, events: int) -> None:
        subject, judge, view = self.subject, self.referee.judge, self._view
        by_answer, by_message = move.until is Until.ANSWER, move.until is Until.MESSAGE
        start, left, sent = subject.estimate, events, subject.sent if by_message else 0
        estimate, total, message_sent = start, view.total, False
        while left and not message_sent and not (by_answer and estimate != start):
            unreported = min(subject.events_until_report(move.site), left)
            taken = min(unreported + 1, left)
            judge(estimate, total + unreported)
            subject.add(move.site, taken)
            total, left = total + taken, left - taken
            if taken > unreported:
                estimate = subject.estimate
                judge(estimate, total)
                message_sent = by_message and subject.sent != sent
            if self.path is not None:
                self.path.append(Point(total, (estimate - total) / (self._alpha * total)))
        view._message_sent = message_sent
        view._after(move.site, events - left, estimate)

    def score(self, seed: int) -> Score:
        referee, subject = self.referee, self.subject
        errors = (referee.worst, referee.over, referee.under, referee.violated_at)
        randomised = getattr(subject, "randomised", True)
        return Score(seed, self.total, *errors, subject.sent, subject.round, randomised)
