"""An adversary that sees all steps keeps the answers of a family inside their bounds, and comes close to each."""

from fractions import Fraction

import pytest

from countless.core.family.messages import LabelReport, Totals
from countless.core.family.site import FamilySite
from support.family_adversary import Adversary
from support.family_world import Broken

SEEDS, ROUNDS = (0, 2, 3, 5), 6


@pytest.mark.parametrize("faults", [False, True])
def test_no_answer_leaves_its_bounds_and_some_come_close(faults: bool) -> None:
    worst = play_all(faults=faults)
    for name in worst[0]:
        assert 0.85 <= max(each[name] for each in worst) <= 1, name


@pytest.mark.soak
@pytest.mark.parametrize("faults", [False, True])
def test_no_answer_leaves_its_bounds_for_many_seeds(faults: bool) -> None:
    for seed in range(500):
        play(seed, faults=faults)


def play_all(*, faults: bool, site: type[FamilySite] = FamilySite) -> list[dict[str, Fraction]]:
    return [play(seed, faults=faults, site=site) for seed in SEEDS]


def play(seed: int, *, faults: bool, site: type[FamilySite] = FamilySite) -> dict[str, Fraction]:
    adversary = Adversary(seed, faults=faults, site=site)
    try:
        adversary.run(ROUNDS)
    except Broken as broken:
        raise Broken(f"{broken} (seed {seed})") from broken
    return adversary.worst


class ForgetsTheTotal(FamilySite):
    """Higher steps, by which no label has grown, make it forget how many events it holds back in all."""

    __slots__ = ()

    def _report(self, labels: list[str]) -> tuple[LabelReport, ...]:
        if not labels:
            self._pending_total = 0
        return super()._report(labels)


class TakesASyncForAReport(FamilySite):
    """A Totals has the total only, and the site takes its labels for reported."""

    __slots__ = ()

    def sync(self) -> Totals:
        self._pending = dict.fromkeys(self._pending, 0)
        return super().sync()


MUTANTS = {"forgets the total": (False, ForgetsTheTotal), "takes a Totals for a report": (True, TakesASyncForAReport)}


@pytest.mark.parametrize("name", MUTANTS)
def test_adversary_finds_the_mutant(name: str) -> None:
    faults, site = MUTANTS[name]
    with pytest.raises(Broken):
        play_all(faults=faults, site=site)
