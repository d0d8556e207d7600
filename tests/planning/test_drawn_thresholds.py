"""Thresholds whose last digits are drawn anew, by brute force: design/proofs/dithered.md, section 4.

Places are in events, and windows end where cells of one event end. So thresholds in given cells, m_i of them in the
same one, have the volume 1/(m_1! m_2! ..). A block is a row of cells.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from math import exp, factorial, log, prod, ulp

import pytest

from countless.planning.dithered.check import check_dithered, risks, rounding_factor
from countless.planning.dithered.plan import THRESHOLD_RESOLUTION, DitheredPlan, threshold_windows
from countless.planning.dithered.ready_made import quick_plan_dithered
from countless.planning.dithered.schedule import Shape, rounding_nats, solve
from countless.randomness import SeededRandom

Cells = tuple[int, ...]  # each named by its upper end


def volume(cells: Sequence[int]) -> Fraction:
    return Fraction(1, prod(factorial(m) for m in Counter(cells).values()))


@dataclass(frozen=True)
class Drawing:
    windows: tuple[tuple[int, int], ...]
    grain: int  # cells in a block

    def lists(self, first: int, above: int) -> list[Cells]:
        """All places of the thresholds `first`, `first + 1`, .. that are in order and above a point."""
        windows = self.windows[first:]
        cells = range(self.windows[0][0] + 1, self.windows[-1][1] + 1)
        return [
            chosen
            for chosen in combinations_with_replacement([cell for cell in cells if cell > above], len(windows))
            if all(low < cell <= high for cell, (low, high) in zip(chosen, windows, strict=True))
        ]

    def later(self, first: int, above: int) -> Fraction:
        """Z_first(above)."""
        return sum(map(volume, self.lists(first, above)), Fraction(0))

    @cached_property
    def drawn(self) -> dict[Cells, Fraction]:
        """The law of all thresholds, once each is replaced by a uniform one of its block, and the list is sorted."""
        lists = self.lists(0, self.windows[0][0])
        blocks: Counter[Cells] = Counter()
        for cells in lists:
            blocks[tuple(cell // self.grain for cell in cells)] += volume(cells)  # type: ignore[assignment]
        law: dict[Cells, Fraction] = {}
        whole, count = sum(blocks.values()), len(self.windows)
        lowest, highest = min(blocks)[0] * self.grain, (max(map(max, blocks)) + 1) * self.grain
        for cells in combinations_with_replacement(range(lowest, highest), count):
            own = tuple(cell // self.grain for cell in cells)
            if own in blocks:
                orders = prod(factorial(m) for m in Counter(own).values())
                law[cells] = Fraction(blocks[own]) / whole * orders * volume(cells) / self.grain**count
        return law

    def prefixes(self, last: int) -> dict[Cells, Fraction]:
        """The law of the thresholds up to `last`."""
        law: dict[Cells, Fraction] = {}
        for cells, weight in self.drawn.items():
            law[cells[: last + 1]] = law.get(cells[: last + 1], Fraction(0)) + weight
        return law

    @property
    def nats(self) -> float:
        """(m* + 1) lambda r."""
        crowd = max(
            sum(high >= low - self.grain for _, high in self.windows[: index + 1])
            for index, (low, _) in enumerate(self.windows)
        )
        densities = [
            self.later(index + 2, max(top, self.windows[index + 1][0])) / self.later(index + 1, top)
            for index, (_, top) in enumerate(self.windows[:-1])
        ]
        return float((crowd + 1) * max(densities) * self.grain)

    def excess(self) -> float:
        """The largest ratio of a probability to what the bounds of 3.6 say without the nats."""
        whole, ratios = self.later(0, self.windows[0][0]), []
        for index, (low, _) in enumerate(self.windows):
            most = {
                start: self.later(index + 1, max(start, low)) / whole
                for start in range(self.windows[0][0] - 2 * self.grain, self.windows[-1][1] + 1)
            }
            for cells, weight in self.prefixes(index).items():
                start = cells[-1] - cells[-1] % self.grain - 1  # cells are named by their upper ends
                ratios.append(float(weight / (volume(cells[:-1]) * most[start])))
        return max(ratios)


DRAWINGS = [
    Drawing(((2, 5), (4, 7)), 3),
    Drawing(((0, 20), (10, 30)), 2),
    Drawing(((2, 6), (4, 8), (5, 11)), 3),
    Drawing(((1, 5), (1, 6), (2, 7)), 4),
    Drawing(((0, 4), (1, 5), (2, 6), (3, 9)), 2),
    Drawing(((0, 2), (4, 6), (5, 9)), 3),
]


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_law_of_drawn_thresholds_is_bounded_as_the_page_says(drawing: Drawing) -> None:
    assert sum(drawing.drawn.values()) == 1
    assert drawing.excess() <= exp(drawing.nats)


def test_without_a_charge_the_bounds_do_not_hold_for_drawn_thresholds() -> None:
    assert DRAWINGS[0].excess() > 1.12


def errors(plan: DitheredPlan, uniforms: list[float]) -> list[Decimal]:
    """How far each drawn threshold is, in steps, from where its distribution function has the uniform number."""
    windows = threshold_windows([p.length for p in plan.phases], [p.dither for p in plan.phases])
    lows, highs = ([Decimal(end) for end in ends] for ends in zip(*windows, strict=True))
    thresholds = [Decimal(threshold) for threshold in plan.thresholds(uniforms)]
    places = {threshold: index for index, threshold in enumerate(thresholds)}
    assert len(places) == len(thresholds)
    held = [Decimal(1)] + [Decimal(0)] * len(windows)  # volumes of the first points below the place
    below: list[tuple[Decimal, Decimal]] = []  # at each threshold, those of the points before it and with it
    first = last = 0
    for left, right in pairwise(sorted({*lows, *highs, *thresholds})):
        last += sum(low <= left for low in lows[last:])
        for j in range(last, first, -1):
            held[j] = sum((held[j - m] * (right - left) ** m / factorial(m) for m in range(j - first + 1)), Decimal(0))
        first += sum(high <= right for high in highs[first:])
        if right in places:
            below.append((held[places[right]], held[places[right] + 1]))
    wholes = [*(before for before, _ in below[1:]), held[-1]]
    return [
        abs(reached - Decimal(uniform) * whole) / density
        for (density, reached), uniform, whole in zip(below, uniforms, wholes, strict=True)
    ]


@pytest.mark.parametrize(("sites", "alpha"), [(200, 0.05), (1_000, 0.1), (131_072, 0.2)])
def test_drawn_thresholds_are_right_to_one_unit_in_the_last_place(sites: int, alpha: float) -> None:
    """Against 60 digits. The page charges four units."""
    plan = quick_plan_dithered(sites, alpha, 2.0**-8)
    with localcontext() as context:
        context.prec = 60
        for seed in range(3):
            rng = SeededRandom(seed)
            found = errors(plan, [rng.random() for _ in plan.phases])
            assert max(found) <= ulp(plan.steps_per_round)


@pytest.mark.parametrize("last", [1000.0, 2.0**20 - 1, 2.0**20, 2.0**20 + 1, 2.0**21 - 1, 2.0**21, 3.0 * 2**24])
def test_four_units_in_the_last_place_are_charged_wherever_a_round_ends(last: float) -> None:
    """Just above 2^20 steps, 800 phases need 0.0122 nats."""
    need = 800 * 4 * (4 * ulp(last)) / THRESHOLD_RESOLUTION
    assert log(rounding_factor(800, last)) >= need
    assert rounding_nats(last) >= log(rounding_factor(800, last))
    assert log(rounding_factor(1600, last)) >= 2 * need


def test_round_that_ends_above_two_to_the_twenty_steps_is_planned_with_the_charge_that_the_check_demands() -> None:
    lengths = (2.0**20 / 40 + 1,) * 40
    allowance, phases = solve(1000, 0.01, 2.0**-10, Shape(lengths, (60.0,) * 40))
    plan = DitheredPlan(1000, 0.01, 2.0**-10, allowance, phases, ())
    assert 2.0**20 < phases[-1].position + phases[-1].length < 2.0**20 * 1.1
    check_dithered(plan)
    assert max(risks(plan, [(1.0, 1000)])) <= plan.eta / 40
