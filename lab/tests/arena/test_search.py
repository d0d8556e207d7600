"""The search: limited by tries or seconds, reproducible, and never worse than the adversaries it starts from."""

from dataclasses import replace

import pytest

from countless.randomness import SeededRandom
from countless_lab.arena.adversaries.controls import SingleSite
from countless_lab.arena.adversaries.stop_after_jump import StopAfterJump
from countless_lab.arena.match import Setting, play
from countless_lab.arena.registry import ADVERSARIES, adversary_named
from countless_lab.arena.search import evolve, mutate

pytestmark = pytest.mark.slow

SETTING = Setting("blocks", adversary_named("uniform"), 64, 0.1, 0.05, 6_000)
DEFAULTS = len(ADVERSARIES) - 1  # all but the one that reads messages


def test_search_is_at_least_as_good_as_the_defaults() -> None:
    found = evolve(SETTING, 3, tries=DEFAULTS + 6, games=1)
    plain = evolve(SETTING, 3, tries=DEFAULTS, games=1)
    assert found.tried == DEFAULTS + 6
    assert found.fitness >= plain.fitness > 1
    assert play(replace(SETTING, adversary=found.adversary), 1).worst > 1  # also on a seed that was not searched


def test_search_stops_after_the_time_limit() -> None:
    ticks = iter(range(1000))
    found = evolve(SETTING, 3, seconds=4, games=1, clock=lambda: next(ticks))
    assert found.tried == DEFAULTS + 3


def test_same_seed_finds_the_same_adversary() -> None:
    assert evolve(SETTING, 5, tries=DEFAULTS + 3, games=1) == evolve(SETTING, 5, tries=DEFAULTS + 3, games=1)


def test_message_reader_is_searched_only_if_allowed() -> None:
    small = replace(SETTING, scheme="exact", sites=2, events=50)
    assert evolve(small, 1, tries=1, games=1).tried == DEFAULTS
    assert evolve(small, 1, tries=1, games=1, sees="everything").tried == DEFAULTS + 1


def test_mutations_stay_in_range() -> None:
    rng = SeededRandom(1)
    adversary = StopAfterJump()
    for _ in range(200):
        child = mutate(adversary, rng)
        assert isinstance(child, StopAfterJump)
        assert child.early is None or 0.1 <= child.early <= 1.0
        assert child.min_step is None or 0 <= child.min_step <= 40
        adversary = child
    assert mutate(SingleSite(), rng) == SingleSite()
