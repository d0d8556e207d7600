"""The frameworks side by side: measured messages beside what the paper says of each."""

from dataclasses import dataclass

from countless.lab.arena.adversaries.stop_after_jump import StopAfterJump
from countless.lab.arena.frameworks.difference_estimators import DifferenceEstimators
from countless.lab.arena.frameworks.framework import Framework
from countless.lab.arena.frameworks.private_median import PrivateMedian
from countless.lab.arena.frameworks.sketch_switching import SketchSwitching
from countless.lab.arena.game import Adversary, Game
from countless.lab.arena.match import Setting, play
from countless.randomness import SeededRandom

FRAMEWORKS: dict[str, type[Framework]] = {
    kind.scheme: kind for kind in (SketchSwitching, DifferenceEstimators, PrivateMedian)
}
CLAIMS = {
    "hyz": "O(sqrt(k)/alpha log N), oblivious streams only",
    "sketch switching": "hyz times the flip number: can be worse than deterministic",
    "difference estimators": "a synchronisation for each block: at least k/alpha, no better than deterministic",
    "private median": "hyz times ~sqrt(flip number) copies, and its privacy proof does not carry over",
    "deterministic": "O(k/alpha log N)",
    "dithered": "(not in the paper)",
    "partial_dp": "O(C sqrt(k)/alpha log N)",
}


@dataclass(frozen=True)
class Row:
    name: str
    messages: int
    worst: float
    flips: int | None  # changes of the estimate, where they are counted
    claim: str


def measure(
    name: str, sites: int, alpha: float, delta: float, events: int, seed: int, adversary: Adversary | None = None
) -> Row:
    """One game; by default against stop after jump."""
    opponent = adversary or StopAfterJump()
    if name not in FRAMEWORKS:
        score = play(Setting(name, opponent, sites, alpha, delta, events), seed)
        return Row(name, score.messages, score.worst, None, CLAIMS[name])
    subject = FRAMEWORKS[name](sites, alpha, delta, events, seed)
    game = Game(subject, opponent, sites, alpha, SeededRandom(seed).spawn("adversary", opponent.name))
    game.play(events)
    return Row(name, subject.sent, game.referee.worst, subject.flips, CLAIMS[name])
