"""One attack, recorded: what the page replays. The old tracker and ours against the same adversary.

    python -m countless.lab.arena.recording src/countless/server/page/attack.json

writes the recording that the package carries. It is drawn from one seed, so it comes out the same everywhere.
"""

import json
import sys
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from countless.lab.arena.game import Game
from countless.lab.arena.match import Setting
from countless.lab.arena.registry import adversary_named
from countless.lab.arena.subject import Tracked
from countless.randomness import SeededRandom

CONTESTANTS = {"hyz": "the classical tracker", "auto": "Countless"}
ADVERSARY = "stop-after-jump"
SITES, ALPHA, DELTA, EVENTS, SEED = 1024, 0.01, 0.05, 400_000, 1
FRAMES = 400  # of the film


class Moment(NamedTuple):
    """How things stand after a report or a move."""

    total: int
    estimate: float
    sent: int
    error: float  # over alpha; positive where the answer is too large


class RecordingSubject(Tracked):
    """A tracker that writes down what the public sees and what it has sent."""

    def __init__(self, setting: Setting, seed: int) -> None:
        super().__init__(setting.fresh_scheme(), setting.sites, alpha=setting.alpha, delta=setting.delta, seed=seed)
        self._alpha = setting.alpha
        self._total = 0
        self.samples: list[Moment] = []

    def add(self, site: int, n: int) -> None:
        """Events, and a picture: the error is worst just before the tracker speaks, or just after."""
        before = self.estimate
        super().add(site, n)
        self._total += n
        if self._total > 1:
            late = (before - self._total + 1) / (self._total - 1) / self._alpha
            self.samples.append(Moment(self._total - 1, before, self.sent, late))
        error = (self.estimate - self._total) / self._total / self._alpha
        self.samples.append(Moment(self._total, self.estimate, self.sent, error))


def record() -> dict[str, Any]:
    """Every contestant's game, frame by frame."""
    return {
        "adversary": ADVERSARY,
        "sites": SITES,
        "alpha": ALPHA,
        "delta": DELTA,
        "events": EVENTS,
        "seed": SEED,
        "contestants": [_play(scheme, name) for scheme, name in CONTESTANTS.items()],
    }


def _play(scheme: str, name: str) -> dict[str, Any]:
    setting = Setting(scheme, adversary_named(ADVERSARY), SITES, ALPHA, DELTA, EVENTS)
    subject = RecordingSubject(setting, SEED)
    rng = SeededRandom(SEED).spawn("adversary", ADVERSARY)
    game = Game(subject, setting.adversary, SITES, ALPHA, rng)
    game.play(EVENTS)
    score = game.score(SEED)
    return {
        "scheme": scheme,
        "name": name,
        "worst": round(score.worst, 3),
        "left_at": score.violated_at,
        "messages": score.messages,
        "rounds": score.rounds,
        "frames": [_frame(moments) for moments in _bucket(subject.samples)],
    }


def _bucket(samples: list[Moment]) -> list[list[Moment]]:
    """As many pieces as there are frames, of equally many events. A piece in which nothing happened is still."""
    pieces: list[list[Moment]] = [[] for _ in range(FRAMES)]
    for moment in samples:
        pieces[ceil(moment.total * FRAMES / EVENTS) - 1].append(moment)
    last = samples[0]
    for number, piece in enumerate(pieces):
        if not piece:
            total = (number + 1) * EVENTS // FRAMES
            piece.append(last._replace(total=total, error=(last.estimate - total) / total / ALPHA))
        last = piece[-1]
    return pieces


def _frame(moments: list[Moment]) -> list[float]:
    """Events so far, answer, messages so far, and the worst error of the frame: nothing is smoothed away."""
    worst = max(moments, key=lambda moment: abs(moment.error))
    return [moments[-1].total, round(moments[-1].estimate), moments[-1].sent, round(worst.error, 3)]


def main() -> None:
    """Write the recording to the file that is named."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m countless.lab.arena.recording FILE")
    Path(sys.argv[1]).write_text(json.dumps(record(), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
