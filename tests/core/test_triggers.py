"""Each trigger in batches against the same trigger event by event: a batch ends in the state its events end in."""

from copy import copy
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.random_source import RandomSource
from countless.core.triggers import (
    PHASES,
    BernoulliSampling,
    EveryNth,
    GeometricGrowth,
    OffsetMultiple,
    OncePerBlock,
    Trigger,
    TriggerState,
)
from countless.errors import InvalidParameter
from countless.randomness import SeededRandom
from support.rng import NO_RANDOM, ScriptedRandom

steps = st.integers(1, 40)
batches = st.lists(st.integers(1, 90), min_size=1, max_size=30)
# Triggers that draw nothing, or as many random numbers in a batch as event by event.
batch_independent: st.SearchStrategy[Trigger] = st.one_of(
    steps.map(EveryNth),
    steps.map(BernoulliSampling),
    steps.flatmap(lambda step: st.integers(0, step - 1).map(lambda offset: OffsetMultiple(step, offset))),
)


def walk(trigger: Trigger, start: int, batches: list[int], rng: RandomSource) -> list[tuple[TriggerState, int]]:
    """The state after each batch, and the crossings so far."""
    state, count, crossings, walked = trigger.start(start, rng), start, 0, []
    for batch in batches:
        count += batch
        if count >= state.next_at:
            crossings += trigger.advance(count, state, rng)
        walked.append((copy(state), crossings))
    return walked


@given(batch_independent, st.integers(0, 1000), batches)
def test_batch_ends_in_the_state_of_its_events(trigger: Trigger, start: int, batches: list[int]) -> None:
    batched = walk(trigger, start, batches, SeededRandom(1))
    unit = walk(trigger, start, [1] * sum(batches), SeededRandom(1))
    passed = 0
    for batch, (state, crossings) in zip(batches, batched, strict=True):
        passed += batch
        assert (state, crossings) == unit[passed - 1]
        assert state.last <= start + passed < state.next_at


@given(steps, st.integers(0, 1000), batches)
def test_every_nth_has_its_points_at_multiples(step: int, start: int, batches: list[int]) -> None:
    state, crossings = walk(EveryNth(step), start, batches, NO_RANDOM)[-1]
    end = start + sum(batches)
    points = [count for count in range(start + 1, end + 1) if count % step == 0]
    assert crossings == len(points)
    assert state.last == (points[-1] if points else start)
    assert state.next_at == next(count for count in range(end + 1, end + step + 1) if count % step == 0)


@given(steps, st.data(), st.integers(0, 1000), batches)
def test_offset_multiple_has_its_points_at_offset_modulo_step(
    step: int, data: st.DataObject, start: int, batches: list[int]
) -> None:
    trigger = OffsetMultiple(step, data.draw(st.integers(0, step - 1)))
    state, crossings = walk(trigger, start, batches, NO_RANDOM)[-1]
    end = start + sum(batches)
    points = [count for count in range(start + 1, end + 1) if count % step == trigger.offset]
    assert crossings == len(points)
    assert state.last == (points[-1] if points else start)
    assert state.next_at == trigger.floor(end) + step


@given(steps, st.data(), st.integers(0, 1000))
def test_floor_of_offset_multiple_may_be_negative(step: int, data: st.DataObject, count: int) -> None:
    trigger = OffsetMultiple(step, data.draw(st.integers(0, step - 1)))
    floor = trigger.floor(count)
    assert floor % step == trigger.offset
    assert floor <= count < floor + step


def test_bernoulli_sampling_passes_one_point_for_each_gap() -> None:
    rng = ScriptedRandom([3, 1, 5, 2])  # gaps: heads at 13, 14, 19, 21
    trigger = BernoulliSampling(4)
    state = trigger.start(10, rng)
    assert state == TriggerState(13, 10)
    assert trigger.advance(15, state, rng) == 2
    assert state == TriggerState(19, 14)
    assert rng.draws == [2]


def test_bernoulli_sampling_gaps_are_geometric() -> None:
    """Sample 40,000 gaps at step 5. Chi-square over 20 cells, 19 degrees: P(> 90) < 1e-10 (pinned seed)."""
    rng, size, step = SeededRandom(21), 40_000, 5
    cells = [0] * 20
    for _ in range(size):
        cells[min(BernoulliSampling(step).start(0, rng).next_at, 20) - 1] += 1
    stay = 1 - 1 / step
    law = [size * stay**g / step for g in range(19)] + [size * stay**19]
    assert sum((seen - due) ** 2 / due for seen, due in zip(cells, law, strict=True)) < 90


@given(steps, st.integers(0, 1000), batches, st.integers(0, 10**6))
def test_once_per_block_has_one_point_in_each_block(step: int, start: int, batches: list[int], seed: int) -> None:
    trigger, rng = OncePerBlock(step), SeededRandom(seed)
    state, count, crossings = trigger.start(start, rng), start, 0
    for batch in batches:
        count += batch
        if count >= state.next_at:
            crossings += trigger.advance(count, state, rng)
            assert start < state.last <= count
        whole, rest = divmod(count - start, step)
        assert whole <= crossings <= whole + (rest > 0)
        assert count < state.next_at <= state.block + step
        assert (state.block - start) % step == 0
        # The next point is in the first block whose point has not been passed.
        assert state.block == start + crossings * step


def last_point_law(step: int, batch: int, unit: bool, size: int, seed: int) -> dict[tuple[int, int], int]:
    """How often `batch` events of OncePerBlock(step) end with (crossings, last point)."""
    seen: dict[tuple[int, int], int] = {}
    for run in range(size):
        rng = SeededRandom(seed).spawn(run)
        state, crossings = walk(OncePerBlock(step), 0, [1] * batch if unit else [batch], rng)[-1]
        key = (crossings, state.last)
        seen[key] = seen.get(key, 0) + 1
    return seen


@pytest.mark.parametrize("batch", [3, 5, 7, 11, 13])
def test_once_per_block_batch_has_the_law_of_its_events(batch: int) -> None:
    """Exact law by enumeration for step 4 against 4,000 runs, unit and batched.

    At most 25 outcomes: chi-square with up to 24 degrees, P(> 100) < 1e-10 for each of ten tests (pinned seed).
    """
    step, size = 4, 4_000
    law: dict[tuple[int, int], Fraction] = {}
    whole, rest = divmod(batch, step)
    for at in range(1, step + 1):  # where the point of the last, unfinished block lies
        for before in range(1, step + 1):  # and that of the block before
            if at <= rest:
                key = (whole + 1, whole * step + at)
            else:
                key = (whole, (whole - 1) * step + before if whole else 0)
            law[key] = law.get(key, Fraction(0)) + Fraction(1, step * step)
    for unit in (True, False):
        seen = last_point_law(step, batch, unit, size, seed=31)
        assert seen.keys() <= law.keys()
        assert sum((seen.get(key, 0) - size * p) ** 2 / (size * p) for key, p in law.items()) < 100


@given(st.floats(0.001, 0.49), st.integers(0, 10**60), st.integers(0, 10**60))
def test_geometric_growth_is_exact_for_counts_of_any_size(alpha: float, count: int, extra: int) -> None:
    trigger, written = GeometricGrowth(alpha), Fraction(repr(alpha))
    covered = count * (1 + written) / (1 - written)
    assert trigger.max_count_covered(count) <= covered < trigger.max_count_covered(count) + 1
    state = trigger.start(count, NO_RANDOM)
    assert state == TriggerState(trigger.max_count_covered(count) + 1, count)
    now = state.next_at + extra
    assert trigger.advance(now, state, NO_RANDOM) == 1
    assert state == TriggerState(trigger.max_count_covered(now) + 1, now)


@given(st.floats(0.001, 0.49), st.integers(0, 30), st.integers(0, PHASES - 1), st.integers(0, 10**4))
def test_phase_moves_points_by_one_event_at_most(alpha: float, extra: int, phase: int, count: int) -> None:
    trigger, plain = GeometricGrowth(alpha, extra, phase), GeometricGrowth(alpha)
    covered = trigger.max_count_covered(count)
    assert covered == plain.max_count_covered(count) + extra
    assert max(count + 1, covered) <= trigger.next_point(count) <= covered + 1
    assert trigger.next_point(count) < trigger.next_point(count + 1) + 1
    assert GeometricGrowth(alpha, extra).next_point(count) == covered + 1


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
def test_each_bit_of_a_phase_moves_one_point(alpha: float) -> None:
    """Of the points that a site has while the distance between them grows to 20."""

    def moved(phase: int) -> int:
        trigger, count, moves = GeometricGrowth(alpha, 0, phase), 0, 0
        while trigger.max_count_covered(count) - count < 20:
            moves += trigger.next_point(count) <= trigger.max_count_covered(count)
            count = trigger.next_point(count)
        return moves

    assert moved(0) == 0
    for bit in range(6):
        assert moved(1 << bit) <= 1
    if alpha <= 0.01:  # else two marks may be passed at once
        assert [moved(1 << bit) for bit in range(6)] == [1] * 6
        assert moved(PHASES - 1) == 6


@pytest.mark.parametrize(("extra", "phase"), [(-1, 0), (1.0, 0), (True, 0), (0, -1), (0, PHASES), (0, 1.0), (0, True)])
def test_extra_and_phase_must_be_in_range(extra: int, phase: int) -> None:
    with pytest.raises(InvalidParameter, match=r"extra|phase"):
        GeometricGrowth(0.1, extra, phase)


def test_geometric_growth_uses_the_decimal_value_of_alpha() -> None:
    """0.1 is a tenth: 9 * 1.1/0.9 is 11 exactly, which the binary number next to a tenth may miss."""
    assert GeometricGrowth(0.1).max_count_covered(9) == 11
    assert GeometricGrowth(0.1).max_count_covered(9 * 10**40) == 11 * 10**40


@pytest.mark.parametrize("kind", [EveryNth, BernoulliSampling, OncePerBlock])
@pytest.mark.parametrize("step", [0, -1, 1.5, True, "2", None])
def test_step_must_be_a_positive_integer(kind: type[EveryNth], step: int) -> None:
    with pytest.raises(InvalidParameter, match="step"):
        kind(step)


@pytest.mark.parametrize(("step", "offset"), [(5, 5), (5, -1), (5, 1.0), (5, True), (0, 0)])
def test_offset_must_be_below_step(step: int, offset: int) -> None:
    with pytest.raises(InvalidParameter, match=r"offset|step"):
        OffsetMultiple(step, offset)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, 1, float("nan"), float("inf"), "0.1"])
def test_geometric_growth_alpha_must_be_between_0_and_1(alpha: float) -> None:
    with pytest.raises(InvalidParameter, match="alpha"):
        GeometricGrowth(alpha)
