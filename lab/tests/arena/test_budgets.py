"""Games against a budget: the promises and the cost bounds hold under all traffic and every adversary."""

from statistics import mean

import pytest

from countless.errors import UnknownName
from countless.planning.budget import least_messages, most_messages
from countless_lab.arena.budgets import ADVERSARIES, TRAFFIC, play

NAMES = [*TRAFFIC, *ADVERSARIES]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("slack", [0.0, 0.01, 0.1])
@pytest.mark.parametrize(("sites", "limit"), [(1, 1), (1, 5000), (3, 1), (3, 4), (3, 1000), (10, 3000), (40, 20_000)])
def test_messages_stay_below_the_bound(name: str, slack: float, sites: int, limit: int) -> None:
    game = play(name, sites, limit, slack)
    assert game.messages <= game.most_messages
    assert game.left <= slack * limit


@pytest.mark.parametrize("name", ["steady", "full-rooms"])
@pytest.mark.parametrize("slack", [0.0, 0.01])
@pytest.mark.parametrize(("sites", "limit"), [(3, 1000), (40, 20_000)])
def test_messages_with_a_known_number_of_holders_stay_below_their_bound(
    name: str, slack: float, sites: int, limit: int
) -> None:
    game = play(name, sites, limit, slack, known=True)
    assert game.messages <= game.most_messages <= most_messages(sites, limit, slack)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("slack", [0.0, 0.001])
def test_messages_of_large_budgets_stay_below_the_bound(name: str, slack: float) -> None:
    game = play(name, 1000, 10**6, slack)
    assert game.messages <= game.most_messages
    assert game.left <= slack * 10**6


def test_adversary_leaves_nearly_the_whole_slack_unused() -> None:
    game = play("stranded", 100, 1_000_000, 0.01)
    assert 9_000 <= game.left <= 10_000


@pytest.mark.soak
def test_adversary_costs_more_than_any_traffic() -> None:
    worst = max(play(name, 100, 100_000, 0).messages for name in TRAFFIC)
    assert play("full-rooms", 100, 100_000, 0).messages > 1.2 * worst


def test_no_game_is_below_the_lower_bound() -> None:
    games = [play("random-bursts", 100, 1_000_000, 0.001, seed) for seed in range(20)]
    assert mean(game.messages for game in games) >= least_messages(100, 1_000_000, 0.001) > 120


def test_unknown_traffic_is_refused() -> None:
    with pytest.raises(UnknownName, match="steady"):
        play("nothing", 3, 10, 0)
