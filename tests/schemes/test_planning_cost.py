"""Planning is not felt, and churn does not inflate plans: by the number of plans and of messages, not by time."""

from math import exp

import pytest

from countless import Tracker
from countless.core.coordinator import Coordinator
from countless.core.messages import SiteId, Snapshot
from countless.planning.cache import PlanCache, round_up_sites
from countless.planning.oblivious import ObliviousPlan
from countless.planning.plan import MAX_SITES
from countless.randomness import SeededRandom
from countless.schemes.auto import CANDIDATES
from countless.schemes.registry import scheme_named
from countless.schemes.sampled import Sampled

pytestmark = pytest.mark.slow


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, float, float]]:
    """The requests for plans."""
    requests: set[tuple[int, float, float]] = set()
    plan = PlanCache.plan

    def recorded(cache: PlanCache[ObliviousPlan], sites: int, alpha: float, eta: float) -> ObliviousPlan:
        requests.add((round_up_sites(sites), alpha, eta))
        return plan(cache, sites, alpha, eta)

    monkeypatch.setattr(PlanCache, "plan", recorded)
    return requests


@pytest.mark.parametrize(("exponent", "most"), [(0.0, 8), (1.0, 8)])
def test_fleet_that_grows_one_by_one_needs_few_plans(
    exponent: float, most: int, planned: set[tuple[int, float, float]]
) -> None:
    """250 sites, 60,000 events. Each size of the fleet had a plan of its own, whether or not it was used.

    Four rounds need plans; `sampled` may be cheaper three times.
    """
    rng, weights = SeededRandom(1), [rank**-exponent for rank in range(1, 251)]
    steps = [sum(weights[: index + 1]) for index in range(250)]
    tracker, counters = Tracker(sites=["first"], alpha=0.05, seed=1), {}
    for event in range(60_000):
        point = rng.random() * steps[-1]
        site = next(index for index, end in enumerate(steps) if end > point) if exponent else int(250 * rng.random())
        if site * 200 > event:  # it has not appeared yet
            site %= event // 200 + 1
        if site not in counters:
            counters[site] = tracker.add_site(site)
        counters[site].add()
    assert tracker.answer.contains(60_000)
    assert len(planned) <= most


def test_few_sites_need_no_plan(planned: set[tuple[int, float, float]]) -> None:
    tracker = Tracker(sites=63, alpha=0.05, seed=1)
    for event in range(20_000):
        tracker.site(event % 63).add()
    assert planned == set()


def messages_with_churn(
    scheme: str, adversary: str, replacements: int, sites: int = 100, alpha: float = 0.1
) -> tuple[int, Tracker]:
    """Messages while the total grows from 100,000 by a factor e, without those of joins and departures."""
    rng, present, batches = SeededRandom(1), list(range(sites)), 6_000 if replacements <= 2_000 else 10_000
    tracker = Tracker(sites=sites, alpha=alpha, scheme=scheme_named(scheme, adversary), seed=1)
    for event in range(10_000):
        tracker.site(present[event % sites]).add(10)
    before, total = tracker.messages.total, 100_000
    for batch in range(batches):
        target = int(100_000 * exp((batch + 1) / batches))
        tracker.site(present[rng.randbelow(sites)]).add(target - total)
        total = target
        if batch % (batches // replacements) == 0:
            leaving = rng.randbelow(sites)
            tracker.remove_site(present[leaving])
            present[leaving] = 1_000 + batch
            tracker.add_site(present[leaving])
    assert tracker.answer.contains(total)
    return tracker.messages.total - before - 3 * replacements, tracker


def test_churn_does_not_inflate_plans_without_slots() -> None:
    _, tracker = messages_with_churn("sampled", "adaptive", 2_000)
    assert getattr(tracker.plan, "sites") == round_up_sites(100)  # noqa: B009 - plans are of several kinds


def test_auto_under_churn_costs_about_as_much_as_its_best_scheme() -> None:
    """It sent 4,324 messages where `sampled` needs 900: plans had slots for all sites that had ever joined."""
    best, _ = messages_with_churn("sampled", "adaptive", 2_000)
    assert messages_with_churn("auto", "adaptive", 2_000)[0] <= best
    assert messages_with_churn("auto", "sees-everything", 2_000)[0] <= best


def test_auto_does_not_start_a_round_whenever_slots_run_out() -> None:
    """`sampled`, which has no slots, needs 2,750; rounds of `dithered` with ever more slots took 5,100."""
    assert messages_with_churn("auto", "adaptive", 5_000, sites=200, alpha=0.05)[0] <= 3_100


def test_reserve_of_slots_is_what_joins_while_the_total_grows_by_e() -> None:
    coordinator = Coordinator("hits", Sampled(), SeededRandom(1), alpha=0.1, delta=0.05, fleet=[SiteId("a")])
    assert coordinator.next_context.reserve == 0
    for number in range(3):
        coordinator.join(SiteId(number), Snapshot("hits", 0, 0))
    context = coordinator.next_context
    assert (context.sites, context.reserve) == (4, 0)  # at first all sites join


def test_rounded_sites_stay_within_the_limit() -> None:
    assert round_up_sites(MAX_SITES) == MAX_SITES
    assert all(sites <= round_up_sites(sites) <= 1.125 * sites for sites in range(8, 3_000))


@pytest.mark.parametrize("adversary", ["adaptive", "oblivious"])
def test_seeded_run_does_not_depend_on_plans_made_before(adversary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans for more sites and less failure are in the cache, which a coordinator that may not wait would take."""

    def run() -> tuple[int, float]:
        tracker = Tracker(sites=150, alpha=0.1, scheme=scheme_named("auto", adversary), seed=1)
        for event in range(5_000):
            tracker.site(event * event % 150).add(1 + event // 100)
        return tracker.messages.total, tracker.answer.estimate

    runs = []
    for exponents in ((), (9, 13, 17)):
        for scheme in CANDIDATES["oblivious"]:
            caches = tuple(PlanCache(cache.calibrate) for cache in scheme.caches)
            monkeypatch.setattr(scheme, "caches", caches)
            for exponent in exponents:
                caches[0].plan(160, 0.1, 2.0**-exponent)
        runs.append(run())
    assert runs[0] == runs[1]
