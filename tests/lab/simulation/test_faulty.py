"""Faults, then healing: every count accounted for, and the answer back inside its bound.

Trials run with delta = 1e-9 and pinned seeds, so a failure is a bug. To repeat one:
`python -c "from countless.lab.simulation.trial import Trial; Trial(...).run()"` with the trial that the message shows.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from countless.core.answer import State
from countless.errors import InvariantBroken
from countless.lab.simulation.faults import PROFILES, FaultProfile
from countless.lab.simulation.faulty import FaultyWorld
from countless.lab.simulation.trial import Trial
from countless.schemes.exact import Exact
from countless.schemes.registry import SCHEMES

SEEDS = Path(__file__).parent / "failing_seeds.txt"


def kept() -> Iterator[Trial]:
    for line in SEEDS.read_text().splitlines():
        fields = line.partition("#")[0].split()
        if fields:
            seed, scheme, profile, sites, alpha, ticks = fields
            yield Trial(int(seed), scheme, profile, int(sites), float(alpha), int(ticks))


@pytest.mark.slow
@pytest.mark.parametrize("trial", list(kept()), ids=lambda trial: f"{trial.seed}-{trial.scheme}")
def test_seeds_that_once_failed(trial: Trial) -> None:
    trial.run()


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("scheme", ["exact", "deterministic", "lattice", "dithered"])
def test_every_weather(scheme: str, profile: str) -> None:
    Trial(1, scheme, profile, sites=4, ticks=250).run()


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_every_scheme(scheme: str) -> None:
    Trial(2, scheme, "rough", sites=3, alpha=0.3, ticks=250).run()


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["unordered", "unordered_rough"])
@pytest.mark.parametrize("scheme", ["hyz", "blocks", "sampled"])
def test_paces_that_draw_for_themselves_out_of_order(scheme: str, profile: str) -> None:
    for seed in (3, 4):
        Trial(seed, scheme, profile, sites=3, alpha=0.3, ticks=300).run()


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(4))
def test_many_seeds(hundred: int) -> None:
    for seed in range(1000 + 25 * hundred, 1025 + 25 * hundred):
        Trial.drawn(seed).run()


def test_a_seed_is_a_story() -> None:
    first, second = (Trial(7, "lattice", "worst").run() for _ in range(2))
    assert (first.now, first.counted, repr(first)) == (second.now, second.counted, repr(second))
    assert repr(Trial(8, "lattice", "worst").run()) != repr(first)


def test_every_fault_happens() -> None:
    """A world in which nothing broke would prove nothing."""
    world = FaultyWorld(Exact(), 6, PROFILES["worst"], alpha=0.2, delta=0.1, seed=4)
    states, silent, rounds = set(), 0, 0
    for _ in range(1500):
        world.tick()
        answer = world.owner.coordinator.answer
        states.add(answer.state)
        silent += len(answer.silent)
        rounds = max(rounds, answer.round)
    assert states == {State.EXACT, State.LEARNING, State.DEGRADED}
    assert silent
    assert rounds >= 2  # restarts of the coordinator
    assert world.lost  # sites that came back without their state
    assert world.finished  # sites that left
    assert max(name for name in world.machines if isinstance(name, int)) > 6  # newcomers


def test_a_failure_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyWorld, "counted", property(lambda world: -1))
    with pytest.raises(InvariantBroken, match=r"Trial\(seed=5, scheme='exact', profile='delay'.*more is known"):
        Trial(5, "exact", "delay").run()


def test_calm_weather_is_no_weather() -> None:
    world = FaultyWorld(Exact(), 3, FaultProfile(), alpha=0.1, delta=0.1, seed=1)
    for _ in range(50):
        world.tick()
    world.heal()
    assert world.owner.coordinator.published == world.counted > 0
