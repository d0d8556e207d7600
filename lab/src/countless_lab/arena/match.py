"""A match: many games from many seeds, in parallel, and an exact confidence interval of the failure rate.

No failure in n games is not a proof; the interval says what n games show.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from countless.core.estimator import Scheme
from countless.core.parameters import require_alpha, require_probability
from countless.errors import InvalidParameter
from countless.randomness import SeededRandom
from countless.schemes.registry import scheme_named
from countless_lab.arena.frameworks.registry import FRAMEWORKS
from countless_lab.arena.game import Adversary, Game, Point, Score, Subject
from countless_lab.arena.negative_controls import NEGATIVE_CONTROLS
from countless_lab.arena.parallel import Progress, in_parallel
from countless_lab.confidence import lower_limit, upper_limit
from countless_lab.simulation.world import World

CONFIDENCE = 0.95


class Tracked(World):
    """A `World` of numbered sites; see `game.Subject`."""

    @property
    def sent(self) -> int:
        return self.messages.total

    @property
    def scheme(self) -> str:
        return self.coordinator.scheme.name

    def step(self, site: int) -> int:
        """The step of the trigger in force, or 0 if it has none or reports every event."""
        step: int = getattr(self.coordinator.trigger_of(self.site(site).site_id), "step", 1)
        return step if step > 1 else 0

    def events_until_report(self, site: int) -> int:
        tracked = self.site(site)
        return tracked.next_at - tracked.count - 1


@dataclass(frozen=True)
class Setting:
    """Everything about a game but its seed."""

    scheme: str
    adversary: Adversary
    sites: int
    alpha: float
    delta: float
    events: int
    against: str = "adaptive"  # the adversary that `auto` plans for
    head_start: int = 0  # events at every site before the first move

    def __post_init__(self) -> None:
        for name, least in (("sites", 1), ("events", 1), ("head_start", 0)):
            if getattr(self, name) < least:
                raise InvalidParameter(name, getattr(self, name), f"at least {least}")
        require_alpha(self.alpha)
        require_probability("delta", self.delta)
        if self.scheme not in FRAMEWORKS:
            self.fresh_scheme()
        elif self.head_start:
            raise InvalidParameter("head_start", self.head_start, f"0 for {self.scheme}: it takes no batches")

    def fresh_scheme(self) -> Scheme:
        if self.scheme in NEGATIVE_CONTROLS:
            return NEGATIVE_CONTROLS[self.scheme]()
        return scheme_named(self.scheme, self.against)

    def subject(self, seed: int) -> Subject:
        if self.scheme in FRAMEWORKS:
            return FRAMEWORKS[self.scheme](self.sites, self.alpha, self.delta, self.events, seed)
        return Tracked(self.fresh_scheme(), self.sites, alpha=self.alpha, delta=self.delta, seed=seed)


@dataclass(frozen=True)
class Match:
    setting: Setting
    scores: tuple[Score, ...]

    @property
    def trials(self) -> int:
        return len(self.scores)

    @property
    def failures(self) -> int:
        """Games in which an estimate was outside 1 ± alpha at any event."""
        return sum(score.violated_at is not None for score in self.scores)

    @property
    def failure_rate(self) -> tuple[float, float]:
        """Exact (Clopper-Pearson) limits of the probability that a game fails, each with 95 % confidence."""
        return (
            lower_limit(self.failures, self.trials, CONFIDENCE),
            upper_limit(self.failures, self.trials, CONFIDENCE),
        )

    @property
    def worst(self) -> float:
        """Worst error / alpha of all games."""
        return max(score.worst for score in self.scores)

    @property
    def randomised(self) -> bool:
        """True if any game ended in a round with secrets."""
        return any(score.randomised for score in self.scores)

    @property
    def messages(self) -> float:
        """Mean number of messages of a game."""
        return sum(score.messages for score in self.scores) / self.trials


def game_of(setting: Setting, seed: int, *, path: bool = False) -> Game:
    """The game of one seed, before its first move. Adversary and tracker have separate random sources."""
    rng = SeededRandom(seed).spawn("adversary", setting.adversary.name)
    game = Game(setting.subject(seed), setting.adversary, setting.sites, setting.alpha, rng, path=path)
    if setting.head_start:
        game.head_start(setting.head_start)
    return game


def play(setting: Setting, seed: int) -> Score:
    game = game_of(setting, seed)
    game.play(setting.events)
    return game.score(seed)


def trace_of(setting: Setting, seed: int) -> list[Point]:
    """One game, for a plot: the error after every message and every move."""
    game = game_of(setting, seed, path=True)
    game.play(setting.events)
    return game.path or []


def run(
    settings: Sequence[Setting],
    trials: int,
    seed: int = 0,
    *,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> list[Match]:
    """`trials` games for each setting, from seeds seed, seed + 1, ..."""
    if trials < 1:
        raise InvalidParameter("trials", trials, "at least 1")
    tasks = [(setting, seed + i) for setting in settings for i in range(trials)]
    scores = in_parallel(play, tasks, jobs, progress)
    return [Match(setting, tuple(scores[i * trials : (i + 1) * trials])) for i, setting in enumerate(settings)]
