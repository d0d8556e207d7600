"""Binomial numbers against the exact law, and batches of `BernoulliSampling` against coins one by one."""

from collections import Counter, defaultdict
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import comb, isqrt, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core import binomial as binomial_module
from countless.core import triggers
from countless.core.binomial import binomial, log_weight
from countless.core.triggers import BernoulliSampling, TriggerState
from countless.randomness import SeededRandom
from support.rng import ScriptedRandom


def law(n: int, step: int) -> list[Fraction]:
    return [Fraction(comb(n, heads) * (step - 1) ** (n - heads), step**n) for heads in range(n + 1)]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "step"), [(1, 2), (2, 7), (9, 3), (40, 2), (60, 50), (300, 4), (700, 2)])
def test_weights_are_the_binomial_law_and_below_the_envelope(n: int, step: int) -> None:
    """Each number is proposed from one place of one block, so these two facts give the law exactly."""
    exact, mode = law(n, step), (n + 1) // step
    width = isqrt(12 * n * (step - 1) // step**2 + 2) + 1
    assert exact[mode] == max(exact)
    assert width * exact[mode] >= 1
    with localcontext(Context(prec=60)):
        for heads, probability in enumerate(exact):
            ratio = probability / exact[mode]
            found = (log_weight(heads, n, step) - log_weight(mode, n, step)).exp()
            due = Decimal(ratio.numerator) / ratio.denominator
            assert abs(found - due) <= due * Decimal("1e-30")
            block = (heads - mode if heads >= mode else mode - 1 - heads) // width
            assert ratio <= Fraction(1, 2 ** max(0, block - 1))


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(0, 2**128), st.integers(1, 2**70))
def test_binomial_is_between_0_and_n(seed: int, n: int, step: int) -> None:
    found = binomial(n, step, SeededRandom(seed))
    assert 0 <= found <= n
    mean, deviation = n / step, sqrt(n * (step - 1)) / step
    assert abs(found - mean) <= 40 * deviation + 40


@given(st.integers(1, 10**6), st.integers(2, 10**4), st.data())
def test_floats_decide_as_decimals_do(n: int, step: int, data: st.DataObject) -> None:
    mode = (n + 1) // step
    found = data.draw(st.integers(max(0, mode - 1000), min(n, mode + 1000)))
    with localcontext(Context(prec=60)):
        limit = (log_weight(found, n, step) - log_weight(mode, n, step)).exp() * binomial_module._UNIT
        boundary = min(int(limit), binomial_module._UNIT - 1)
        for uniform in (*(max(0, boundary - shift) for shift in (0, 1, 10**6, 10**20)), boundary // 2):
            if abs(uniform - limit) > Decimal("1e-6"):  # where the limit is an integer, rounding decides
                assert binomial_module._is_below(uniform, found, mode, n, step, 0) is (uniform < limit)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "step"), [(6, 2), (20, 7), (900, 300)])
def test_binomial_has_its_distribution(n: int, step: int) -> None:
    """3,000 draws, 8 cells, 7 degrees: P(chi-square > 70) < 2e-12 for each (pinned seed)."""
    rng, size = SeededRandom(5), 3_000
    exact = [float(p) for p in law(n, step)]
    due = [*exact[:7], sum(exact[7:])] if n > 7 else exact
    seen = Counter(min(binomial(n, step, rng), len(due) - 1) for _ in range(size))
    assert sum((seen[cell] - size * p) ** 2 / (size * p) for cell, p in enumerate(due)) < 70


@pytest.mark.slow
def test_binomial_of_huge_n_is_near_its_mean_in_the_right_proportions() -> None:
    """200 draws, standardised, in four quarters of the normal law: 3 degrees, P(chi-square > 60) < 1e-12."""
    rng, size, n, step = SeededRandom(6), 200, 10**18, 1_000
    mean, deviation = n // step, isqrt(n * (step - 1)) // step
    cells: Counter[int] = Counter()
    for _ in range(size):
        z = (binomial(n, step, rng) - mean) / deviation
        cells[(z > -0.6744897501960817) + (z > 0) + (z > 0.6744897501960817)] += 1
    assert sum((cells[cell] - size / 4) ** 2 / (size / 4) for cell in range(4)) < 60


def test_batch_of_many_points_has_the_exact_law_of_its_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The joint law of crossings and last point, for a point at 1 and 6 more coins, by enumeration of all coins."""
    step, coins = 3, 6
    due: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    heads, tails = Fraction(1, step), Fraction(step - 1, step)
    for tosses in product((True, False), repeat=coins):
        points = [1, *(place for place, head in enumerate(tosses, 2) if head)]
        due[len(points), points[-1]] += heads ** sum(tosses) * tails ** (coins - sum(tosses))
    monkeypatch.setattr(triggers, "_MAX_GAPS", 0)
    found: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for gap in range(1, coins + 2):  # from the end of the batch back to its last point
        weight = heads * tails ** (gap - 1) if gap <= coins else tails**coins
        trials: list[int] = []

        def record(n: int, step: int, rng: object, trials: list[int] = trials) -> int:
            trials.append(n)
            return 0

        monkeypatch.setattr(triggers, "binomial", record)
        state = TriggerState(1, 0)
        crossings = BernoulliSampling(step).advance(1 + coins, state, ScriptedRandom([gap, 4]))
        assert state.next_at == 1 + coins + 4
        for more, probability in enumerate(law(trials[0], step) if trials else [Fraction(1)]):
            found[crossings + more, state.last] += weight * probability
    assert found == due


@pytest.mark.soak
def test_batches_of_many_points_have_the_law_of_gaps_one_by_one() -> None:
    """Crossings, last and next point of 10,000 events at step 4, 400 runs each way; 8 cells by the sign of three
    differences from their medians, 7 degrees: P(chi-square of two samples > 70) < 2e-12 (pinned seed).
    """
    size, step, events = 400, 4, 10_000
    seen: dict[bool, Counter[tuple[bool, bool, bool]]] = {True: Counter(), False: Counter()}
    for whole, cells in seen.items():
        for run in range(size):
            rng = SeededRandom(7).spawn(run, whole)
            state, crossings = BernoulliSampling(step).start(0, rng), 0
            for count in (events,) if whole else range(2_000, events + 1, 2_000):  # below 1,000 gaps: one by one
                if count >= state.next_at:
                    crossings += BernoulliSampling(step).advance(count, state, rng)
            cells[crossings > events // step, state.last > events - 2, state.next_at > events + 2] += 1
    both = seen[True] + seen[False]
    assert sum((seen[True][cell] - seen[False][cell]) ** 2 / both[cell] for cell in both) < 70


def test_batch_of_a_billion_events_draws_a_thousand_gaps() -> None:
    drawn = 0

    class Counted(SeededRandom):
        def geometric(self, step: int) -> int:
            nonlocal drawn
            drawn += 1
            return super().geometric(step)

    rng = Counted(8)
    state = BernoulliSampling(2).start(0, rng)
    crossings = BernoulliSampling(2).advance(10**30, state, rng)
    assert abs(crossings - 10**30 // 2) < 10 * 10**15  # twenty standard deviations
    assert 10**30 - 200 < state.last <= 10**30 < state.next_at
    assert drawn == 1_003
