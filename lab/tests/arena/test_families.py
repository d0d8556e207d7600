"""Adversaries for labels: the deterministic family holds, the lattice family falls to those that see the answers."""

import pytest

from countless.errors import UnknownName
from countless_lab.arena.families import PLAYERS, play

SEEDS = range(5)


@pytest.mark.parametrize("name", PLAYERS)
def test_deterministic_family_holds(name: str) -> None:
    game = play(name, "deterministic")
    assert game.within
    assert abs(game.error) <= 0.5


def test_lattice_family_holds_for_traffic_that_does_not_react() -> None:
    """Each game fails with probability 5 % at most, so all five with less than 4e-7. It is played with fixed seeds."""
    assert any(play("steady", "lattice", seed=seed).within for seed in SEEDS)


@pytest.mark.parametrize(("name", "sign"), [("raise", 1), ("hide", -1)])
def test_lattice_family_falls_to_an_adversary_that_sees_the_answers(name: str, sign: int) -> None:
    """The sum of 100 uniform errors: with fixed seeds, and far from the bound."""
    for seed in SEEDS:
        game = play(name, "lattice", seed=seed)
        assert not game.within
        assert sign * game.error > 1.5


def test_unknown_player_is_refused() -> None:
    with pytest.raises(UnknownName, match="steady"):
        play("unknown", "lattice")
