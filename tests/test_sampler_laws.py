"""Every sampler against the law that a proof names: exactly, by running it on every sequence of draws.

design/proofs/samplers.md lists them. Where a support is infinite, or has 2^53 values, the test says what it cuts off.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from math import comb, exp, prod
from pathlib import Path
from typing import Any

import pytest

from countless.client.session import protocol
from countless.client.surroundings import ClientSurroundings
from countless.core import binomial as binomial_module
from countless.core.binomial import binomial
from countless.core.family.messages import SetSteps, Steps
from countless.core.triggers import BernoulliSampling, OncePerBlock, Trigger
from countless.planning.dithered.ready_made import quick_plan_dithered
from countless.privacy import finite, noise
from countless.privacy.finite import asking, sampled
from countless.privacy.noise import bernoulli_exp, discrete_laplace
from countless.privacy.sparse_vector import SparseVector
from countless.randomness import geometric_from_uniform
from countless.schemes import dithered
from countless.schemes.dithered import DitheredEstimator
from countless.schemes.offsets import OffsetTable
from countless.wire.incarnations import first_of
from countless_lab.audit.transcripts import log_pmf
from countless_lab.lattice_family import LatticeSite
from support.exact_law import Again, Branching, Weight, exact_law

ROOT = Path(__file__).parents[1]


def uniform(values: object) -> dict[Any, Fraction]:
    listed = list(values)  # type: ignore[call-overload]
    return dict.fromkeys(listed, Fraction(1, len(listed)))


def assert_same(found: Mapping[Any, Weight], due: Mapping[Any, Weight], within: float = 1e-12) -> None:
    assert sum(due.values()) == pytest.approx(1, abs=within)
    assert set(found) <= {value for value, weight in due.items() if weight}
    for value, weight in due.items():
        assert float(found.get(value, 0)) == pytest.approx(float(weight), abs=within, rel=0), value


def batches(events: int) -> Iterator[tuple[int, ...]]:
    for cuts in product((False, True), repeat=events - 1):
        places = [0, *(place for place, cut in enumerate(cuts, 1) if cut), events]
        yield tuple(after - before for before, after in pairwise(places))


def walked(trigger: Trigger, rng: Branching, sizes: tuple[int, ...]) -> tuple[int, int, int]:
    """Crossings, last and next point after these batches."""
    state, count, crossings = trigger.start(0, rng), 0, 0
    for size in sizes:
        count += size
        if count >= state.next_at:
            crossings += trigger.advance(count, state, rng)
    return crossings, state.last, state.next_at


def points(trigger: Trigger, rng: Branching, events: int) -> tuple[int, ...]:
    state, passed = trigger.start(0, rng), []
    for count in range(1, events + 1):
        if count == state.next_at:
            assert trigger.advance(count, state, rng) == 1
            passed.append(count)
    return tuple(passed)


def test_points_of_blocks_are_uniform_and_independent() -> None:
    step, blocks = 3, 4
    due = uniform(product(*(range(block * step + 1, block * step + step + 1) for block in range(blocks))))
    assert exact_law(lambda rng: points(OncePerBlock(step), rng, step * blocks)) == due


@pytest.mark.parametrize("trigger", [OncePerBlock(2), OncePerBlock(3), BernoulliSampling(3)])
def test_every_division_into_batches_has_the_same_law(trigger: Trigger) -> None:
    events = 5
    due = exact_law(lambda rng: walked(trigger, rng, (1,) * events))
    for sizes in batches(events):
        assert exact_law(lambda rng, sizes=sizes: walked(trigger, rng, sizes)) == due  # type: ignore[misc]


@pytest.mark.parametrize("step", [1, 2, 5])
def test_sampled_events_are_independent_coins(step: int) -> None:
    """The gaps are geometric, so that the points of 5 events are those of 5 coins."""
    events, p = 5, Fraction(1, step)
    due: dict[tuple[int, ...], Fraction] = {}
    for coins in product((False, True), repeat=events):
        weight = prod(p if heads else 1 - p for heads in coins)
        if weight:
            due[tuple(place for place, heads in enumerate(coins, 1) if heads)] = Fraction(weight)
    assert exact_law(lambda rng: points(BernoulliSampling(step), rng, events)) == due


@pytest.mark.parametrize("step", [2, 3, 7, 1000])
def test_geometric_gaps_are_those_of_all_fractions(step: int) -> None:
    """Gaps grow with the fraction, of which there are 2^53: the law of the code is where they change."""
    whole = 1 << 53
    for gap in {*range(1, 12), step, 3 * step, 30 * step}:
        low, high = 0, whole  # the fractions of at least `high` have a larger gap
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if geometric_from_uniform(middle / whole, step) > gap else (middle + 1, high)
        beyond = Fraction(whole - high, whole)
        assert abs(beyond - (1 - Fraction(1, step)) ** gap) <= Fraction(2, 10**15)


@pytest.mark.parametrize(("n", "step"), [(4, 2), (3, 3), (5, 2), (7, 4), (12, 12)])
def test_binomial_numbers_have_their_law(n: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With exact weights in the place of those that `test_weights_are_the_binomial_law...` compares.

    One turn of the loop, with at most ten draws: blocks that take more are beyond n, so that they are rejected.
    """
    due = {heads: Fraction(comb(n, heads) * (step - 1) ** (n - heads), step**n) for heads in range(n + 1)}

    def run(rng: Branching) -> int:
        turns = draws = 0

        def randbelow(below: int) -> int:
            nonlocal turns, draws
            turns, draws = turns + (below == 3), draws + 1
            if turns > 1 or draws > 10:
                raise Again
            return 0 if below == 1 << 100 else rng.randbelow(below)

        def is_below(_: int, found: int, mode: int, n: int, step: int, halvings: int) -> bool:
            share = due[found] / due[mode] * 2**halvings
            assert share <= 1
            return rng.choose((share, 1 - share)) == 0

        class Source:
            def __init__(self) -> None:
                self.randbelow = randbelow

        monkeypatch.setattr(binomial_module, "_is_below", is_below)
        return binomial(n, step, Source())  # type: ignore[arg-type]

    found = exact_law(run)
    assert_same(found, due)


class Comparing:
    """Draws numbers of which only a comparison is asked."""

    def __init__(self, rng: Branching) -> None:
        self._rng = rng
        self.draws = 0

    def randbelow(self, n: int) -> "Comparing":
        self.draws += 1
        self._n = n
        return self

    def __lt__(self, limit: int) -> bool:
        share = Fraction(limit, self._n)
        return self._rng.choose((share, 1 - share)) == 0 if self.draws < 25 else False


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 1), (1, 2), (2, 7), (9, 10)])
def test_bernoulli_exp_is_true_with_probability_exp(numerator: int, denominator: int) -> None:
    """Up to 25 flips: the rest has a probability below 1/25!."""
    found = exact_law(lambda rng: bernoulli_exp(numerator, denominator, Comparing(rng)))  # type: ignore[arg-type]
    assert float(found.get(True, 0)) == pytest.approx(exp(-numerator / denominator), abs=1e-15)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(3), Fraction(5, 2), Fraction(7, 4)])
def test_discrete_laplace_has_its_law(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """With exact coins in the place of `bernoulli_exp`, and up to 40 of them: the rest has a probability of e^-40."""

    def run(rng: Branching) -> int:
        coins = 0

        def coin(numerator: int, denominator: int, _: object) -> bool:
            nonlocal coins
            coins += 1
            p = exp(-numerator / denominator) if coins < 40 else 0.0
            return rng.choose((p, 1 - p)) == 0

        class Once:
            def randbelow(self, n: int) -> int:
                if n == scale.numerator and coins:
                    raise Again
                return rng.randbelow(n)

        monkeypatch.setattr(noise, "bernoulli_exp", coin)
        return discrete_laplace(scale, Once())  # type: ignore[arg-type]

    found = exact_law(run)
    assert len(found) > 20
    for x, weight in found.items():
        assert float(weight) == pytest.approx(exp(log_pmf(x, scale)), abs=1e-12)


def test_offsets_are_uniform_and_independent_of_each_other() -> None:
    steps = (3, 1, 3)
    found = exact_law(lambda rng: tuple(OffsetTable(steps, rng)[slot].offset for slot in range(3)))
    assert found == uniform(product(*map(range, steps)))


@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_error_of_a_lattice_is_uniform_at_every_count(count: int) -> None:
    """Also after the lattice of a free slot was moved to the count of a site that joins."""
    for joined_at in (0, 5):

        def error(rng: Branching, joined_at: int = joined_at) -> int:
            table = OffsetTable((4,), rng)
            table.shift(0, joined_at)
            return table.floor(0, joined_at + count) - (joined_at + count)

        assert exact_law(error) == uniform(range(-3, 1))


def test_fractions_of_thresholds_are_uniform_with_all_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With digits to the base of 4 in the place of 2^53; smaller fractions than 4^-3 are left out.

    The largest fraction has the probability of all above it.
    """
    monkeypatch.setattr(dithered, "_WHOLE", 4)

    def fraction(rng: Branching) -> float:
        zeros = 0

        class Digits:
            def randbelow(self, n: int) -> int:
                nonlocal zeros
                drawn = rng.randbelow(n)
                zeros += drawn == 0
                if zeros > 2:
                    raise Again
                return drawn

        first, second = (rng.spawn("first").randbelow(4), rng.spawn("second").randbelow(4))
        return dithered._fraction(first, second, Digits())  # type: ignore[arg-type]

    found = exact_law(fraction)
    for value, width in zip(sorted(found), [b - a for a, b in pairwise([*sorted(found), 1.0])], strict=True):
        assert width <= value / 4 or value == max(found)
        assert float(found[value]) == pytest.approx(width / (1 - min(found)), abs=1e-12), value
    assert min(found) <= 1 / 64


def test_last_digits_of_thresholds_are_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each threshold in its block of events, independently; without a block nothing is drawn."""
    plan = quick_plan_dithered(200, 0.05, 2.0**-8)
    monkeypatch.setattr(dithered, "_fractions", lambda _, times: [0.3] * times)
    for step, grain in ((4, 1), (3 * 2**12, 3)):
        few = plan.__class__(plan.sites, plan.alpha, plan.eta, plan.allowance, plan.phases[:3], ())

        def goals(rng: Branching, step: int = step, few: Any = few) -> tuple[int, ...]:
            return tuple(dithered._goals(few, step, [step] * 200, rng))

        found = exact_law(goals)
        starts = [goal - goal % grain for goal in min(found)]
        assert found == uniform(product(*(range(start, start + grain) for start in starts)))


def test_offsets_and_thresholds_of_a_round_are_different_draws() -> None:
    plan = quick_plan_dithered(200, 0.05, 2.0**-8)
    drawn: Counter[tuple[object, ...]] = Counter()

    class Recorder:
        def __init__(self, path: tuple[object, ...] = ()) -> None:
            self._path, self._draws = path, 0

        def randbelow(self, n: int) -> int:
            drawn[(*self._path, self._draws)] += 1
            self._draws += 1
            return n // 2

        def spawn(self, *labels: str | int) -> "Recorder":
            return Recorder((*self._path, *labels))

    DitheredEstimator(plan, 50, Recorder())  # type: ignore[arg-type]
    assert len(drawn) == drawn.total() == 200 + 3 * len(plan.phases)


def test_credits_of_labels_are_rounded_up_with_the_right_probability_and_independently() -> None:
    """floor((u + n)/s) s with u uniform: for two labels, in two rounds, and for the total, which has its own."""
    step, total, n = 3, 3, 4

    def run(rng: Branching) -> tuple[int, ...]:
        site = LatticeSite("f", rng)
        known = []
        for round_number in (1, 2):
            site.receive(SetSteps("f", round_number, Steps(step, total, 1000)))
            for label in ("x", "y"):
                before = site._reported.get(label, 0)
                site.add(label, n)
                known.append(site._reported.get(label, 0) - before)
            known.append((site._estimate - site.total) + 1)
        return tuple(known)

    found = exact_law(run)
    down = Fraction(step - n % step, step)
    credit = {n - n % step: down, n - n % step + step: 1 - down}
    due = {
        (a, b, c, d, e, f): credit[a] * credit[b] * Fraction(1, total) * credit[d] * credit[e] * Fraction(1, total)
        for a, b, d, e in product(credit, repeat=4)
        for c, f in product(range(total), repeat=2)
    }
    assert_same({(a, b, c % 3, d, e, f % 3): w for (a, b, c, d, e, f), w in found.items()}, due)


def likelihood(counts: tuple[int, ...], most: int, epsilon: float) -> dict[tuple[bool, ...], float]:
    """The law of the answers of a sparse vector with threshold 3, as its proof has it."""
    due: dict[tuple[bool, ...], float] = {}
    level_scale, scale = Fraction(2 / epsilon), Fraction(4 * most / epsilon)
    for level in range(-20, 21):
        for answers in product((False, True), repeat=len(counts)):
            weight, left, given = exp(log_pmf(level, level_scale)), most, []
            for count, answer in zip(counts, answers, strict=True):
                if left:
                    above = sum(exp(log_pmf(x, scale)) for x in range(3 + level - count, 3 + level - count + 40))
                    weight *= above if answer else 1 - above
                    left -= answer
                    given.append(answer)
                elif answer:
                    weight = 0.0
            due[tuple(given)] = due.get(tuple(given), 0.0) + weight
    return due


REACH = 5


@cache
def _noise_law(scale: Fraction) -> tuple[float, ...]:
    return tuple(exp(log_pmf(x, scale)) for x in range(-REACH, REACH + 1))


def test_sparse_vector_has_the_law_of_its_proof() -> None:
    """Noise beyond 5 is left out: its probability is below 1e-4."""
    counts, most, epsilon = (2, 4), 1, 8.0

    def run(rng: Branching) -> tuple[bool, ...]:
        class Enumerated:
            def laplace(self, scale: Fraction) -> int:
                return rng.choose(_noise_law(scale)) - REACH

        vector, given = SparseVector(3, most, Fraction(epsilon), Enumerated()), list[bool]()
        for count in counts:
            given += [vector.above(count)] if vector.left else []
        return tuple(given)

    assert_same(exact_law(run), likelihood(counts, most, epsilon), within=1e-3)


def test_sampled_mechanism_has_the_law_of_its_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 8 uniform numbers in the place of 2^53."""
    monkeypatch.setattr(finite, "_BITS", 3)
    law = {"a": 0.125, "b": 0.5, "c": 0.375}

    def mechanism(data: object, adversary: object, choose: Callable[[Mapping[str, float]], str]) -> str:
        return choose(law)

    assert exact_law(lambda rng: sampled(mechanism)((), asking([]), rng)) == law


def test_incarnations_are_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 4 seconds and 8 numbers in each in the place of 2^16 and 2^30."""
    monkeypatch.setattr(protocol, "MAX_RANDOM_S", 4)
    monkeypatch.setattr(protocol, "MAX_RANDOM", 8)
    now = 1_700_000_000

    def incarnation(rng: Branching) -> int:
        return protocol.new_incarnation(ClientSurroundings(wall_clock=lambda: now, rng=rng))

    assert exact_law(incarnation) == uniform(first_of(now + second) + low for second in range(4) for low in range(8))


def test_law_that_is_wrong_is_found() -> None:
    """An offset that is never 0, and two sources with the same labels."""
    wrong = exact_law(lambda rng: 1 + rng.randbelow(2))
    assert wrong != uniform(range(3))
    same = exact_law(lambda rng: (rng.spawn("x").randbelow(2), rng.spawn("x").randbelow(2)))
    assert same == {(0, 0): Fraction(1, 2), (1, 1): Fraction(1, 2)}


DRAWS = re.compile(r"\.(randbelow|geometric|laplace|random)\(")
NO_LAW = {  # nothing in a proof depends on what these draw
    "src/countless/client/session/reconnect.py": "pauses between connections",
    "src/countless/client/transport/nats_transport.py": "the broker node that is tried first",
    "src/countless/server/cluster/lease_keeper.py": "when leases are renewed",
    "src/countless/randomness.py": "the sources themselves: tests/test_randomness.py",
    "src/countless/core/random_source.py": "a protocol",
}
LAB = ("lattice_family.py", "schemes", "planning")


def test_every_file_that_draws_is_on_the_page_of_samplers() -> None:
    page = (ROOT / "design" / "proofs" / "samplers.md").read_text()
    lab = ROOT / "lab" / "src" / "countless_lab"
    files = [*(ROOT / "src").rglob("*.py"), *(path for name in LAB for path in (lab / name).rglob("*.py"))]
    files.append(lab / LAB[0])
    drawing = {str(path.relative_to(ROOT)) for path in files if DRAWS.search(path.read_text())}
    assert len(drawing) > 10
    named = set(re.findall(r"`((?:src|lab)/[^`]+\.py)`", page))
    assert drawing - set(NO_LAW) == named
    for test in re.findall(r"`((?:lab/)?tests/[^`]+?)::(\w+)`", page):
        assert f"def {test[1]}" in (ROOT / test[0]).read_text()
