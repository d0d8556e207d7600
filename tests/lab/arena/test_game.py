"""The game and its referee: skipping from report to report judges every single event, and views hide what
they must.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from countless.errors import InvalidParameter
from countless.lab.arena.game import Adversary, FullView, Game, Move, Referee, Until, View
from countless.lab.arena.match import Setting, game_of
from countless.lab.arena.registry import ADVERSARIES, adversary_named
from countless.lab.arena.subject import Tracked
from countless.randomness import SeededRandom


class Slow(Tracked):
    """Pretends that every event might send something, so that the game has to go one by one."""

    def events_until_report(self, site: int) -> int:
        return 0


@pytest.mark.parametrize("scheme", ["hyz", "blocks", "lattice", "sampled", "dithered", "partial_dp", "deterministic"])
@pytest.mark.parametrize("adversary", ["stop-after-jump", "group-freeze", "averager", "message-reader"])
def test_skipping_is_the_same_game(scheme: str, adversary: str) -> None:
    scores = []
    for kind in (Tracked, Slow):
        subject = kind(scheme, 8, alpha=0.2, delta=0.1, seed=5)
        game = Game(subject, adversary_named(adversary), 8, 0.2, SeededRandom(5))
        game.play(4000)
        scores.append(game.score(5))
    assert scores[0] == scores[1]


class Sudden:
    """Says 50 until the hundredth event, and then the truth."""

    scheme, round, sent, estimate = "sudden", 0, 0, 50.0

    def step(self, site: int) -> int:
        return 0

    def events_until_report(self, site: int) -> int:
        return 99 - self.sent

    def add(self, site: int, n: int) -> None:
        self.sent += n
        self.estimate = 50.0 if self.sent < 100 else self.sent


def test_a_silence_is_judged_at_both_ends() -> None:
    game = Game(Sudden(), adversary_named("single-site"), 1, 0.1, SeededRandom(1), path=True)
    game.play(100)
    assert game.referee.under == pytest.approx((99 - 50) / 9.9)  # just before the report, where nobody may look
    assert game.referee.over == pytest.approx((50 - 1) / 0.1)
    assert game.referee.violated_at == 1
    assert [point.total for point in game.path or []][-1] == 100


@pytest.mark.parametrize("name", ADVERSARIES)
def test_every_adversary_plays_by_the_rules_from_the_first_event(name: str) -> None:
    for sites in (1, 2, 7):
        for scheme in ("exact", "deterministic", "dithered"):
            game = game_of(Setting(scheme, adversary_named(name), sites, 0.2, 0.1, 500), 1)
            game.play(500)
            assert game.score(1).events == 500


def test_a_head_start_happens_before_the_adversary_comes() -> None:
    game = game_of(Setting("deterministic", adversary_named("single-site"), 4, 0.1, 0.1, 500, head_start=100), 1)
    assert game.score(1).events == 400
    assert game.subject.sent == 4  # one batch each
    game.play(500)
    assert game.score(1).violated_at is None
    with pytest.raises(InvalidParameter, match="head_start"):
        Setting("deterministic", adversary_named("single-site"), 4, 0.1, 0.1, 500, head_start=-1)


@dataclass(frozen=True)
class Cheat(Adversary):
    name: ClassVar[str] = "cheat"
    move: Move

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        assert not isinstance(view, FullView)
        while True:
            yield self.move


@pytest.mark.parametrize("move", [Move(0, 1, Until.MESSAGE), Move(3), Move(-1), Move(0, 0)])
def test_moves_that_are_not_allowed_are_refused(move: Move) -> None:
    game = game_of(Setting("exact", Cheat(move), 3, 0.1, 0.1, 10), 1)
    with pytest.raises(InvalidParameter):
        game.play(10)


def test_only_those_who_see_everything_see_messages() -> None:
    subject = Tracked("lattice", 4, alpha=0.1, delta=0.1, seed=1)
    assert not hasattr(View(subject, 4, 0.1), "messages")
    assert not hasattr(View(subject, 4, 0.1), "spoke")
    assert FullView(subject, 4, 0.1).messages == 0


def test_the_referee_lets_the_edge_itself_pass_and_nothing_beyond() -> None:
    referee = Referee(0.01)
    referee.judge(307169.28, 304128)  # (1 + 1/100) * 304128, as a double: a little above the decimal
    referee.judge(99, 100)
    assert referee.violated_at is None
    assert referee.worst == pytest.approx(1)
    referee.judge(307169.29, 304128)
    assert referee.violated_at == 304128


def test_the_first_violation_is_kept() -> None:
    referee = Referee(0.1)
    for estimate, total in ((10, 10), (12, 10), (20, 11)):
        referee.judge(estimate, total)
    assert (referee.violated_at, round(referee.over, 3), referee.under) == (10, 8.182, 0.0)
