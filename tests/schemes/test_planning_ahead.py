"""A coordinator computes no plan while messages wait: it plans ahead, or continues as `deterministic`."""

import pytest

from countless.core.coordinator import Coordinator
from countless.core.estimator import Scheme
from countless.core.messages import Report, SiteId
from countless.planning.cache import PlanCache
from countless.planning.oblivious import ObliviousPlan
from countless.randomness import SeededRandom
from countless.schemes.auto import Auto
from countless.schemes.dithered import Dithered
from countless.schemes.sampled import Sampled

ALPHA = 0.2


def coordinator(scheme: Scheme, sites: int) -> Coordinator:
    fleet = [SiteId(name) for name in range(sites)]
    return Coordinator("hits", scheme, SeededRandom(1), alpha=ALPHA, delta=0.05, fleet=fleet)


def feed(tracked: Coordinator, count: int) -> None:
    """One site of the fleet reports every event; replies are dropped."""
    for number in range(1, count + 1):
        tracked.receive(SiteId(0), Report("hits", 0, number, number))
        if tracked.round:
            return


@pytest.mark.parametrize("scheme", [Dithered(may_block=False), Sampled(may_block=False), Auto(may_block=False)])
def test_scheme_without_a_plan_continues_as_deterministic(scheme: Scheme, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: PlanCache[ObliviousPlan], sites: int, alpha: float, eta: float) -> ObliviousPlan:
        raise AssertionError("a plan was computed while messages waited")

    monkeypatch.setattr(PlanCache, "plan", refuse)
    monkeypatch.setattr(PlanCache, "cached", lambda *_: None)  # another test may have planned for so many sites
    tracked = coordinator(scheme, sites=123)
    feed(tracked, 2_000)
    assert tracked.round == 0
    assert abs(tracked.published / 2_000 - 1) <= ALPHA


def test_plan_made_ahead_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tracked = coordinator(Dithered(may_block=False), sites=3)
    tracked.scheme.prepare(tracked.next_context)
    monkeypatch.setattr(PlanCache, "plan", lambda *_: pytest.fail("a plan was computed while messages waited"))
    feed(tracked, 2_000)
    assert tracked.round == 1
    assert tracked.answer.scheme == "dithered"


def test_plan_cache_offers_only_plans_that_are_safe_instead() -> None:
    made: list[tuple[int, float, float]] = []

    def calibrate(sites: int, alpha: float, eta: float) -> ObliviousPlan:
        made.append((sites, alpha, eta))
        return ObliviousPlan("lattice", sites, alpha, eta, 1.0, 1, sites - eta, ())

    cache = PlanCache(calibrate)
    for sites, alpha, eta in ((10, 0.1, 1e-3), (20, 0.1, 1e-3), (20, 0.1, 1e-6), (20, 0.2, 1e-6)):
        cache.plan(sites, alpha, eta)
    assert cache.cached(10, 0.1, 1e-3) is cache.plan(10, 0.1, 1e-3)
    assert cache.cached(5, 0.3, 1e-3) is None
    assert cache.cached(21, 0.1, 1e-3) is None
    assert cache.cached(10, 0.1, 1e-7) is None
    for sites, eta in ((11, 1e-3), (20, 1e-4), (7, 1e-5)):
        found = cache.cached(sites, 0.1, eta)
        assert found is not None
        assert found.sites >= sites
        assert found.eta <= eta
        assert found.alpha == 0.1
    assert len(made) == 4
