"""`lattice`: the error of a site is uniform on half a step in both directions."""

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from countless.core.estimator import Effect
from countless.core.ledger import Entry
from countless.core.messages import SiteId
from countless.core.triggers import OffsetMultiple
from countless.schemes.lattice import LatticeEstimator
from countless.schemes.offsets import OffsetTable
from support.rng import ScriptedRandom


def estimator(step: int, offsets: list[int], reports: int = 10**9) -> LatticeEstimator:
    return LatticeEstimator(OffsetTable([step] * len(offsets), ScriptedRandom(offsets)), reports)


def entries(*bases: int) -> list[Entry]:
    return [Entry(SiteId(slot), base, slot) for slot, base in enumerate(bases)]


def play(made: LatticeEstimator, site: Entry, count: int) -> bool:
    """The site has come to `count`: it reports its last lattice point, if that is new. True if the round is over."""
    trigger = made.trigger(site.slot)
    assert isinstance(trigger, OffsetMultiple)
    point = trigger.floor(count)
    before = site.reported
    if point <= before:
        return False
    site.reported = point
    return made.on_report(site, before, 1) is Effect.END_ROUND


@given(st.integers(1, 60), st.integers(0, 10**40), st.integers(0, 200))
def test_lattice_error_of_a_site_is_uniform_within_half_a_step(step: int, base: int, more: int) -> None:
    """Over all offsets, at any count: each of the `step` values from -(step-1)/2 to (step-1)/2 exactly once."""
    errors = Counter[Fraction]()
    for offset in range(step):
        made, [site] = estimator(step, [offset]), entries(base)
        made.start([site], departed=0)
        play(made, site, base + more)
        points = made.debug_state()["points"]  # the published number is a float: too coarse for 10^40
        errors[points + Fraction(step - 1, 2) - (base + more)] += 1
    assert errors == {Fraction(2 * i - (step - 1), 2): 1 for i in range(step)}


bases_and_more = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=6)


@given(st.integers(1, 30), bases_and_more, st.data())
def test_lattice_error_is_at_most_half_a_step_per_site(
    step: int, counts: list[tuple[int, int]], data: st.DataObject
) -> None:
    offsets = data.draw(st.lists(st.integers(0, step - 1), min_size=len(counts), max_size=len(counts)))
    made, sites = estimator(step, offsets), entries(*[base for base, _ in counts])
    made.start(sites, departed=17)
    for site, (base, more) in zip(sites, counts, strict=True):
        play(made, site, base + more)
    truth = 17 + sum(base + more for base, more in counts)
    assert abs(made.estimate - truth) <= len(counts) * (step - 1) / 2


def test_lattice_points_below_zero_are_not_clipped() -> None:
    made, [site] = estimator(10, [7]), entries(2)
    made.start([site], departed=0)
    assert made.estimate == -3 + 4.5


def test_joined_site_counts_as_its_lattice_point() -> None:
    made, sites = estimator(10, [0, 3]), entries(20, 58)
    made.start(sites[:1], departed=0)
    assert made.estimate == 20 + 4.5
    made.join(sites[1])
    assert made.estimate == 20 + 53 + 9


def test_lattice_round_ends_after_its_reports_also_inside_a_batch() -> None:
    made, [site] = estimator(10, [0], reports=4), entries(0)
    made.start([site], departed=0)
    assert not play(made, site, 30)
    assert play(made, site, 40)
    made, [site] = estimator(10, [0], reports=4), entries(0)
    made.start([site], departed=0)
    assert play(made, site, 1000)


def test_offset_of_a_free_slot_is_shifted_by_the_count_of_the_joining_site() -> None:
    lattices = OffsetTable([10, 10], ScriptedRandom([7, 4]))
    lattices.shift(1, 25)
    assert lattices[1] == OffsetMultiple(10, 9)
    assert lattices[1].floor(25) - 25 == OffsetMultiple(10, 4).floor(0)
    assert len(lattices) == 2


@given(st.integers(1, 50), st.integers(0, 10**9), st.integers(0, 10**20), st.integers(0, 10**9))
def test_gain_is_the_distance_between_lattice_points(step: int, offset: int, before: int, events: int) -> None:
    lattices = OffsetTable([step], ScriptedRandom([offset % step]))
    trigger, now = lattices[0], before + events
    assert lattices.gain(0, before, now) == trigger.floor(now) - trigger.floor(before)
    assert trigger.start(before, ScriptedRandom([])).next_at == trigger.floor(before) + step
