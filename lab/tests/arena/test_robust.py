"""The robust schemes under every adversary, at sizes where they use random numbers.

False alarms: each game fails with probability at most delta = 1e-7 by the scheme's guarantee. There are fewer than
10,000 games in `make soak`, so at most 0.1 % for the whole file, and 156 in `make test`, so at most 2e-5, whatever the
seeds. No failure in 200 games means a failure rate below 1.5 % under that adversary (95 % confidence), in 3 games only
one below 63 %; the proofs are in design/proofs.

The start of a tracker has no random numbers to guess, so every site gets a head start, just long enough that a round
with random numbers is in force at the first move; each game lasts into another such round at least. Below about 190
sites the proven `partial_dp` needs no noise, and with fewer sites `auto` stays deterministic for longer: they play in
larger fleets.
"""

from typing import NamedTuple

import pytest

from countless.planning.partial_dp.planner import PartialDPPlan
from countless_lab.arena.adversaries.step_chaser import ALTERNATE, LARGEST, SMALLEST, StepChaser
from countless_lab.arena.game import Game
from countless_lab.arena.match import Setting, Tracked, game_of, run
from countless_lab.arena.registry import ADVERSARIES, adversary_named

DELTA = 1e-7


class Size(NamedTuple):
    sites: int
    alpha: float
    events: int
    head_start: int


SIZES = {
    "sampled": Size(16, 0.25, 5_000, 40),
    "dithered": Size(24, 0.2, 5_000, 20),
    "partial_dp": Size(192, 0.3, 5_000, 7),
    "auto": Size(400, 0.02, 27_500, 30),
}
# Almost all events at one site: `deterministic` is cheaper then, and `auto` goes back to it.
BACK_TO_DETERMINISTIC = {("auto", "single-site"), ("auto", "averager")}
every_scheme = pytest.mark.parametrize("scheme", SIZES)
answers_only = pytest.mark.parametrize(
    "adversary", [name for name, kind in ADVERSARIES.items() if kind.sees == "answers"]
)
hidden_reports = pytest.mark.parametrize("adversary", ["stop-after-jump", "group-freeze", "averager", "leak-chaser"])


def setting(scheme: str, adversary: str, size: Size) -> Setting:
    sites, alpha, events, head_start = size
    return Setting(scheme, adversary_named(adversary), sites, alpha, DELTA, events, head_start=head_start)


def has_secrets(game: Game) -> bool:
    """Whether the round in force has random numbers: a plan, and noise where a plan may have none."""
    assert isinstance(game.subject, Tracked)
    plan = game.subject.coordinator.plan
    return plan.noisy if isinstance(plan, PartialDPPlan) else plan is not None


def play_games(scheme: str, adversary: str, number: int) -> None:
    played = setting(scheme, adversary, SIZES[scheme])
    for seed in range(1, number + 1):
        game = game_of(played, seed)
        first = game.subject.round
        assert has_secrets(game)
        game.play(played.events)
        assert game.referee.violated_at is None, f"{played}, seed {seed}: {game.score(seed)}"
        assert has_secrets(game) or (scheme, adversary) in BACK_TO_DETERMINISTIC
        assert game.subject.round > first >= 1


@pytest.mark.slow
@answers_only
@every_scheme
def test_robust_schemes_hold_in_three_games(scheme: str, adversary: str) -> None:
    play_games(scheme, adversary, 3)


@pytest.mark.soak
@answers_only
@every_scheme
def test_robust_schemes_hold_in_two_hundred_games(scheme: str, adversary: str) -> None:
    play_games(scheme, adversary, 200)


@pytest.mark.parametrize("games", [pytest.param(20, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.soak)])
def test_sampled_holds_against_an_adversary_that_reads_messages(games: int) -> None:
    (match,) = run([setting("sampled", "message-reader", SIZES["sampled"])], games, seed=1)
    assert match.failures == 0
    assert match.failure_rate[1] < 3 / games


@pytest.mark.parametrize("games", [pytest.param(1, marks=pytest.mark.slow), pytest.param(10, marks=pytest.mark.soak)])
@hidden_reports
def test_dithered_holds_in_a_larger_fleet(adversary: str, games: int) -> None:
    (match,) = run([setting("dithered", adversary, Size(400, 0.05, 40_000, 20))], games, seed=1)
    assert match.failures == 0


@pytest.mark.parametrize("games", [pytest.param(2, marks=pytest.mark.slow), pytest.param(30, marks=pytest.mark.soak)])
@pytest.mark.parametrize("drive", [LARGEST, SMALLEST, ALTERNATE])
def test_dithered_holds_against_adversaries_that_know_unequal_steps(drive: str, games: int) -> None:
    """The same adversaries break `unmoved`, in which only the move of exposed lattices is missing."""
    for scheme, failures in (("dithered", 0), ("unmoved", games)):
        (match,) = run([Setting(scheme, StepChaser(drive), 100, 0.01, DELTA, 150_000)], games, seed=1)
        assert match.failures == failures
