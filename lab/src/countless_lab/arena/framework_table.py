"""The frameworks side by side: measured messages beside what the paper says of each."""

from dataclasses import dataclass

from countless_lab.arena.adversaries.stop_after_jump import StopAfterJump
from countless_lab.arena.game import Adversary
from countless_lab.arena.match import Setting, game_of
from countless_lab.simulation.world import NO_SECRETS

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
    randomised: bool  # whether its secrets were in play at the end

    @property
    def marked(self) -> str:
        """The name, with a star if the row does not show what the name promises."""
        return self.name + "*" * (not self.randomised and self.name not in NO_SECRETS)


def measure(
    name: str, sites: int, alpha: float, delta: float, events: int, seed: int, adversary: Adversary | None = None
) -> Row:
    """One game; by default against stop after jump."""
    setting = Setting(name.replace(" ", "-"), adversary or StopAfterJump(), sites, alpha, delta, events)
    game = game_of(setting, seed)
    game.play(events)
    score = game.score(seed)
    flips = getattr(game.subject, "flips", None)
    return Row(name, score.messages, score.worst, flips, CLAIMS[name], score.randomised)
