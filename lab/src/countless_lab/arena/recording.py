"""The recorded attack that the web page replays: the classical tracker and Countless against the same adversary.

    python -m countless_lab.arena.recording src/countless/server/page/attack.json

writes the file. It comes from one seed, so it is the same on every machine.
"""

import json
import sys
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from countless.core.messages import SiteName
from countless.randomness import SeededRandom
from countless_lab.arena.game import Game
from countless_lab.arena.match import Setting, Tracked
from countless_lab.arena.registry import adversary_named

CONTESTANTS = {"hyz": "the classical tracker", "auto": "Countless"}
ADVERSARY = "stop-after-jump"
SITES, ALPHA, DELTA, EVENTS, SEED = 1024, 0.01, 0.05, 400_000, 1
FRAMES = 400  # of the recording


class Sample(NamedTuple):
    """The state before or after a report or a move."""

    total: int
    estimate: float
    sent: int
    error: float  # over alpha; positive where the estimate is too large


class RecordingSubject(Tracked):
    def __init__(self, setting: Setting, seed: int) -> None:
        super().__init__(setting.fresh_scheme(), setting.sites, alpha=setting.alpha, delta=setting.delta, seed=seed)
        self._alpha = setting.alpha
        self.samples: list[Sample] = []

    def add(self, name: SiteName, n: int = 1) -> float:
        """Add events; sample just before and just after the report, where the error is largest."""
        before, estimate = self.estimate, super().add(name, n)
        for total, shown in ((self.total - 1, before), (self.total, estimate)):
            if total:
                self.samples.append(Sample(total, shown, self.sent, (shown - total) / total / self._alpha))
        return estimate


def record() -> dict[str, Any]:
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
        "frames": [_frame(samples) for samples in _bucket(subject.samples)],
    }


def _bucket(samples: list[Sample]) -> list[list[Sample]]:
    """The samples of each frame; all frames have equally many events. A frame without samples repeats the last one."""
    frames: list[list[Sample]] = [[] for _ in range(FRAMES)]
    for sample in samples:
        frames[ceil(sample.total * FRAMES / EVENTS) - 1].append(sample)
    last = samples[0]
    for number, frame in enumerate(frames):
        if not frame:
            total = (number + 1) * EVENTS // FRAMES
            frame.append(last._replace(total=total, error=(last.estimate - total) / total / ALPHA))
        last = frame[-1]
    return frames


def _frame(samples: list[Sample]) -> list[float]:
    """Events, estimate and messages at the end of the frame, and the worst error in it."""
    worst = max(samples, key=lambda sample: abs(sample.error))
    return [samples[-1].total, round(samples[-1].estimate), samples[-1].sent, round(worst.error, 3)]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m countless_lab.arena.recording FILE")
    Path(sys.argv[1]).write_text(json.dumps(record(), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
