"""Faults, then healing: every count is accounted for, and the answer is within its bound again.

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


def failed_before() -> Iterator[Trial]:
    for line in SEEDS.read_text().splitlines():
        fields = line.partition("#")[0].split()
        if fields:
            seed, scheme, profile, sites, alpha, ticks = fields
            yield Trial(int(seed), scheme, profile, int(sites), float(alpha), int(ticks))


@pytest.mark.slow
@pytest.mark.parametrize("trial", list(failed_before()), ids=lambda trial: f"{trial.seed}-{trial.scheme}")
def test_trials_that_failed_before_heal(trial: Trial) -> None:
    trial.run()


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("scheme", ["exact", "deterministic", "lattice", "dithered"])
def test_every_fault_profile_heals(scheme: str, profile: str) -> None:
    Trial(1, scheme, profile, sites=4, ticks=250).run()


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_every_scheme_heals(scheme: str) -> None:
    Trial(2, scheme, "rough", sites=3, alpha=0.3, ticks=250).run()


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["unordered", "unordered_rough"])
@pytest.mark.parametrize("scheme", ["hyz", "blocks", "sampled"])
def test_sampling_triggers_heal_after_unordered_messages(scheme: str, profile: str) -> None:
    for seed in (3, 4):
        Trial(seed, scheme, profile, sites=3, alpha=0.3, ticks=300).run()


@pytest.mark.slow
@pytest.mark.parametrize(
    "first_seed", [1000, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1025, 1500, 25))]
)
def test_random_trials_heal(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 25):
        Trial.drawn(seed).run()


def test_same_seed_gives_the_same_trial() -> None:
    first, second = (Trial(7, "lattice", "worst").run() for _ in range(2))
    assert (first.now, first.counted, repr(first)) == (second.now, second.counted, repr(second))
    assert repr(Trial(8, "lattice", "worst").run()) != repr(first)


def test_every_kind_of_fault_happens() -> None:
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
    assert world.lost  # sites that restarted without their state
    assert world.departed  # sites that left
    assert max(name for name in world.machines if isinstance(name, int)) > 6  # sites that joined


def test_failure_names_the_trial_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultyWorld, "counted", property(lambda world: -1))
    with pytest.raises(InvariantBroken, match=r"Trial\(seed=5, scheme='exact', profile='delay'.*more is known"):
        Trial(5, "exact", "delay").run()


def test_default_profile_has_no_faults() -> None:
    world = FaultyWorld(Exact(), 3, FaultProfile(), alpha=0.1, delta=0.1, seed=1)
    for _ in range(50):
        world.tick()
    world.heal()
    assert world.owner.coordinator.published == world.counted > 0
