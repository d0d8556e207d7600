"""The game: skipping from report to report judges every event, and views hide what they must."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from countless.errors import InvalidParameter
from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, FullView, Game, Move, Until, View
from countless_lab.arena.match import Setting, Tracked, game_of
from countless_lab.arena.registry import ADVERSARIES, adversary_named


class Slow(Tracked):
    """Claims that every event may send a message, so that the game plays event by event."""

    def events_until_report(self, site: int) -> int:
        return 0


@pytest.mark.parametrize("scheme", ["hyz", "blocks", "lattice", "sampled", "dithered", "partial_dp", "deterministic"])
@pytest.mark.parametrize("adversary", ["stop-after-jump", "group-freeze", "averager", "message-reader"])
def test_skipping_gives_the_same_score_as_playing_every_event(scheme: str, adversary: str) -> None:
    scores = []
    for kind in (Tracked, Slow):
        subject = kind(scheme, 8, alpha=0.2, delta=0.1, seed=5)
        game = Game(subject, adversary_named(adversary), 8, 0.2, SeededRandom(5))
        game.play(4000)
        scores.append(game.score(5))
    assert scores[0] == scores[1]


class Sudden:
    """Publishes 50 until the hundredth event, and then the total."""

    scheme, round, sent, estimate = "sudden", 0, 0, 50.0

    def step(self, site: int) -> int:
        return 0

    def events_until_report(self, site: int) -> int:
        return 99 - self.sent

    def add(self, site: int, n: int) -> None:
        self.sent += n
        self.estimate = 50.0 if self.sent < 100 else self.sent


def test_game_judges_before_and_after_each_report() -> None:
    game = Game(Sudden(), adversary_named("single-site"), 1, 0.1, SeededRandom(1), path=True)
    game.play(100)
    assert game.referee.under == pytest.approx((99 - 50) / 9.9)  # just before the report
    assert game.referee.over == pytest.approx((50 - 1) / 0.1)
    assert game.referee.violated_at == 1
    assert [point.total for point in game.path or []][-1] == 100


@pytest.mark.parametrize("name", ADVERSARIES)
def test_every_adversary_makes_valid_moves_from_the_first_event(name: str) -> None:
    for sites in (1, 2, 7):
        for scheme in ("exact", "deterministic", "dithered"):
            game = game_of(Setting(scheme, adversary_named(name), sites, 0.2, 0.1, 500), 1)
            game.play(500)
            assert game.score(1).events == 500


class Published:
    """Publishes these answers, the next one after each event, whatever happens."""

    scheme, round, sent = "published", 0, 0

    def __init__(self, answers: list[float]) -> None:
        self.answers = answers
        self.seen: list[tuple[float, int]] = []

    @property
    def estimate(self) -> float:
        return self.answers[len(self.seen) % len(self.answers)]

    def step(self, site: int) -> int:
        return 0

    def events_until_report(self, site: int) -> int:
        return 0

    def add(self, site: int, n: int) -> None:
        self.seen.append((self.estimate, site))


def test_autoscaler_chooses_the_site_by_the_last_answer_alone() -> None:
    """The same site at the same answer, after other answers, at other totals, and with other random numbers."""
    chosen: dict[float, set[int]] = {}
    for answers in ([100, 200, 300, 400], [400, 400, 100, 300, 200], [300]):
        subject = Published([float(answer) for answer in answers])
        Game(subject, adversary_named("autoscaler"), 7, 0.1, SeededRandom(len(answers))).play(50)
        for answer, site in subject.seen:
            chosen.setdefault(answer, set()).add(site)
    assert [len(chosen[answer]) for answer in (100, 200, 300, 400)] == [1, 1, 1, 1]
    assert len(set.union(*chosen.values())) > 1


def test_autoscaler_spreads_the_traffic_over_its_group() -> None:
    subject = Published([100.0])
    Game(subject, adversary_named("autoscaler", group=3), 7, 0.1, SeededRandom(1)).play(100)
    assert len({site for _, site in subject.seen}) == 3


def test_head_start_happens_before_the_first_move() -> None:
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
def test_invalid_moves_are_refused(move: Move) -> None:
    game = game_of(Setting("exact", Cheat(move), 3, 0.1, 0.1, 10), 1)
    with pytest.raises(InvalidParameter):
        game.play(10)


def test_only_the_full_view_has_messages() -> None:
    subject = Tracked("lattice", 4, alpha=0.1, delta=0.1, seed=1)
    assert not hasattr(View(subject, 4, 0.1), "messages")
    assert not hasattr(View(subject, 4, 0.1), "message_sent")
    assert FullView(subject, 4, 0.1).messages == 0
