"""`partial_dp`: every correction to the paper (design/proofs/partial-dp.md) is a test; and noise off is `blocks`.

The rows on theorems 3-4 and on slack names belong to `privacy`; they are checked here once more, from the outside.
"""

from dataclasses import replace
from fractions import Fraction
from inspect import signature
from math import ceil, exp, floor, log, log2, sqrt

import pytest

from countless import Tracker
from countless.core.estimator import Effect, RoundContext
from countless.core.ledger import Entry
from countless.core.messages import SiteId
from countless.core.site import Site
from countless.core.triggers import OncePerBlock
from countless.planning.failure_budget import round_eta
from countless.planning.partial_dp.paper import paper_constant
from countless.planning.partial_dp.planner import PartialDPPlan, plan_partial_dp
from countless.privacy import theorems
from countless.privacy.guarantee import PartialDPGuarantee
from countless.privacy.tails import laplace_sum_quantile
from countless.randomness import SeededRandom
from countless.schemes.partial_dp import NoisyPhaseEstimator, PartialDPPaper
from countless.schemes.registry import SchemeName
from countless.schemes.sampled import CrossingEstimator
from support.streams import stream_named

PAPER = plan_partial_dp(100, 0.1, 1e-3, "paper")
PROVEN = plan_partial_dp(10_000, 0.1, 1e-3)
QUIET = replace(PAPER, threshold_scale=Fraction(0), tree_scale=Fraction(0), threshold=7, phases=6, tree_length=6)


class ScriptedNoise:
    """Noise from a list, then none; remembers the scales it was asked for."""

    def __init__(self, *draws: int) -> None:
        self.draws, self.scales = list(draws), list[Fraction]()

    def laplace(self, scale: Fraction) -> int:
        self.scales.append(scale)
        return self.draws.pop(0) if self.draws else 0


def opened(
    plan: PartialDPPlan, noise: ScriptedNoise, base: int = 1000, step: int = 10
) -> tuple[NoisyPhaseEstimator, Entry]:
    estimator, site = NoisyPhaseEstimator(plan, step, noise), Entry(SiteId(0), base, 0)
    estimator.start([site], departed=0)
    return estimator, site


def cross(estimator: NoisyPhaseEstimator, site: Entry, crossings: int) -> bool:
    """That many blocks report; True if the round is over."""
    site.crossings += crossings
    return estimator.on_report(site, site.reported, crossings) is Effect.END_ROUND


def test_row_base_of_the_logs() -> None:
    root = sqrt(1000)
    by_hand = sqrt((log2(root) ** 1.5 + 1) * log(8 * root / (1e-4 / root)))
    assert paper_constant(1000, 1e-4) == pytest.approx(by_hand)


def test_row_one_crossing_per_block_exactly() -> None:
    """Integer step; the crossing when the in-block count reaches r, uniform on 1 .. step; block = ceil(count/step)."""
    estimator, _ = opened(PAPER, ScriptedNoise(), step=5)
    assert estimator.trigger(0) == OncePerBlock(5)
    seen = set()
    for seed in range(200):
        site, points = Site("hits", SiteId(0), SeededRandom(seed), trigger=OncePerBlock(5)), []
        for _ in range(40):
            points += [message.count for message in site.add()]
        assert [ceil(point / 5) for point in points] == list(range(1, 9))
        seen |= {(point - 1) % 5 + 1 for point in points}
    assert seen == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("sites", [2, 10, 100, 120])
def test_row_one_whole_k_everywhere(sites: int) -> None:
    plan = plan_partial_dp(sites, 0.1, 1e-3, "paper")
    assert plan.phases == ceil(sqrt(sites))
    estimator, site = opened(replace(plan, threshold=3, cap=10**9), ScriptedNoise())
    for phase in range(1, plan.phases + 1):
        assert not cross(estimator, site, 2)
        assert cross(estimator, site, 1) == (phase == plan.phases)


def test_row_threshold_noise_has_scale_four_over_epsilon() -> None:
    assert float(PAPER.threshold_scale) == pytest.approx(4 / PAPER.epsilon)
    noise = ScriptedNoise()
    opened(PAPER, noise)
    assert noise.scales == [PAPER.threshold_scale]


@pytest.mark.parametrize("sites", [9, 49, 64, 1000])
def test_row_the_tree_divides_by_the_nodes_an_input_enters(sites: int) -> None:
    plan = plan_partial_dp(sites, 0.1, 1e-3, "paper")
    levels = floor(log2(plan.tree_length)) + 1
    assert float(plan.tree_scale) == pytest.approx(levels * 4 / plan.epsilon)
    noise = ScriptedNoise()
    estimator, site = opened(plan, noise)
    cross(estimator, site, plan.threshold)
    assert noise.scales == [plan.threshold_scale, plan.tree_scale, plan.threshold_scale]


@pytest.mark.parametrize(("terms", "failure"), [(1, 1e-3), (5, 1e-6), (10, 1e-2)])
def test_row_tails_are_exact_chernoff_bounds(terms: int, failure: float) -> None:
    x = laplace_sum_quantile(3.0, terms, failure)
    tilts = [number / 3000 for number in range(1, 1000)]
    least = min(2 * exp(-s * x) * (1 - 9 * s * s) ** -terms for s in tilts)
    assert least == pytest.approx(failure, rel=1e-3)


def test_row_the_cap_on_a_sites_blocks_ends_the_round() -> None:
    assert PAPER.cap == ceil(4 * paper_constant(100, 1e-3) * 100)
    estimator, site = opened(replace(QUIET, threshold=10**6, cap=20), ScriptedNoise())
    assert not cross(estimator, site, 19)
    assert cross(estimator, site, 1)


def test_row_a_threshold_at_or_below_zero_ends_its_phase_at_its_start() -> None:
    noise = ScriptedNoise(0, 0, -7, 0, 3)  # phase 1: 7; its sum; phase 2: 0, at once; its sum; phase 3: 10
    estimator, site = opened(QUIET, noise)
    cross(estimator, site, 7)
    assert estimator.phase == 2
    assert estimator.estimate == 1000 + 10 * 7
    cross(estimator, site, 9)
    assert estimator.phase == 2
    cross(estimator, site, 1)
    assert estimator.phase == 3


def test_row_even_the_first_phase_may_end_before_its_first_crossing() -> None:
    estimator, _ = opened(QUIET, ScriptedNoise(-9, 5))
    assert estimator.phase == 1
    assert estimator.estimate == 1000 + 10 * 5


def test_row_the_proofs_give_kappa_over_m() -> None:
    sample = theorems.Sample(m=1000)
    with_leaks = theorems.posterior_linear(PartialDPGuarantee(0.1, 0.0, 30), sample).error
    without = theorems.posterior_linear(PartialDPGuarantee(0.1, 0.0, 0), sample).error
    assert with_leaks - without == pytest.approx(30 / 1000)


def test_row_slacks_have_names() -> None:
    names = set(signature(theorems.transfer_linear).parameters)
    assert {"sample_slack", "posterior_slack"} <= names
    assert not {"c", "d"} & names


def test_row_proven_publishes_the_middle() -> None:
    assert PROVEN.noisy
    assert 0 < PROVEN.offset <= PROVEN.threshold
    estimator, site = opened(PROVEN, ScriptedNoise())
    assert estimator.estimate == 1000 + 10 * PROVEN.offset
    cross(estimator, site, PROVEN.threshold)
    assert estimator.estimate == 1000 + 10 * (PROVEN.threshold + PROVEN.offset)


def test_row_failure_is_shared_out_by_rounds_so_no_horizon_is_needed() -> None:
    scheme = PartialDPPaper()
    for number in (1, 2, 7):
        context = RoundContext(number, 9, 10**6, 0.1, 0.05, [10**5] * 9)
        [plan] = scheme.plans(context, may_block=True)
        assert plan.eta == round_eta(0.05, number) <= 0.05 / (number * (number + 1))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["partial_dp_paper", "partial_dp"])
def test_row_more_sites_than_one_over_alpha_squared(scheme: SchemeName) -> None:
    """k = 100 > 1/0.3^2: rounds grow the total by large factors. One run, delta = 1e-9: false alarm below 1e-9."""
    tracker, total = Tracker(sites=100, alpha=0.3, delta=1e-9, scheme=scheme, seed=1), 0
    for site, n in stream_named("bursts", 100, 300_000, seed=1):
        tracker.site(site).add(n)
        total += n
        assert abs(tracker.answer.estimate - total) <= 0.3 * total


def test_row_the_transcript_starts_at_the_exact_total() -> None:
    estimator, _ = opened(PAPER, ScriptedNoise(5), base=12345)
    assert estimator.estimate == 12345


def test_partial_dp_without_noise_is_blocks_at_phase_ends() -> None:
    """Between phase ends it has the estimate of `blocks` at the last one, for crossings in batches of any size."""
    rng = SeededRandom(3)
    private, mine = opened(QUIET, ScriptedNoise())
    blocks, theirs = CrossingEstimator(OncePerBlock(10), 10**9), Entry(SiteId(0), 1000, 0)
    blocks.start([theirs], departed=0)
    crossings, expected, over = 0, 1000, False
    while not over:
        batch = 1 + rng.randbelow(4)
        for _ in range(batch):
            crossings += 1
            blocks.on_report(theirs, theirs.reported, 1)
            if crossings % QUIET.threshold == 0 and crossings < QUIET.threshold * QUIET.phases:
                expected = blocks.estimate
        over = cross(private, mine, batch)
        if not over:
            assert private.estimate == expected
    assert crossings >= QUIET.threshold * QUIET.phases


def test_partial_dp_joins_and_late_starts_add_their_exact_counts() -> None:
    estimator, site = opened(QUIET, ScriptedNoise())
    estimator.join(Entry(SiteId(1), 50, 1))
    estimator.on_late_start(site, 1000, 6)
    assert estimator.estimate == 1056
