"""Below the floor: the answer is certainly within alpha * max(n, floor), for the messages that the theory says."""

from itertools import product
from random import Random

import pytest

from countless.core.answer import within
from countless.core.coordinator import Coordinator
from countless.core.floor import BelowFloor
from countless.core.messages import SiteId, Snapshot, StartRound
from countless.core.site import Site
from countless.inprocess.world import World
from countless.randomness import SeededRandom
from countless.schemes.registry import scheme_named


def world(
    sites: int, floor: int, alpha: float, scheme: str, expected_sites: int
) -> tuple[Coordinator, World[Coordinator, Site], list[Site]]:
    """Sites that join one by one with a count of zero, as before the edge of a window."""
    coordinator = Coordinator(
        "c", scheme_named(scheme), SeededRandom(1), alpha=alpha, delta=0.05, floor=floor, expected_sites=expected_sites
    )
    members = {SiteId(number): Site("c", SiteId(number), SeededRandom(number)) for number in range(sites)}
    network: World[Coordinator, Site] = World(coordinator, {})
    for site_id, site in members.items():
        network.add_site(site_id, site, coordinator.join, site.snapshot())
    return coordinator, network, list(members.values())


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["deterministic", "auto", "sampled", "dithered"])
@pytest.mark.parametrize(("sites", "alpha", "floor"), [(7, 0.1, 3000), (40, 0.05, 20_000), (3, 0.01, 200), (5, 0.2, 1)])
def test_answer_is_within_alpha_of_total_or_floor(scheme: str, sites: int, alpha: float, floor: int) -> None:
    coordinator, network, members = world(sites, floor, alpha, scheme, sites)
    random = Random(4)  # noqa: S311
    for total in range(1, 3 * floor + 50):
        site = members[min(int(random.expovariate(0.3)), sites - 1)]
        network.send(site.site_id, site.advance(site.count + 1))
        answer = coordinator.answer
        assert within(answer.estimate, alpha, total, floor)
        assert answer.lower <= total <= answer.upper


def test_messages_below_the_floor_are_a_round_of_steps() -> None:
    """100 sites, 1 %, even traffic: k / (2 alpha) reports for a total as large as the floor, after one join and one
    trigger each.
    """
    floor = 100_000
    _, network, members = world(100, floor, 0.01, "deterministic", 100)
    assert network.traffic.total == 200
    for number in range(floor - 100):
        site = members[number % 100]
        network.send(site.site_id, site.advance(site.count + 1))
    assert network.traffic.up - 100 <= 100 / (2 * 0.01)
    assert network.traffic.down == 100


@pytest.mark.parametrize(
    ("sites", "alpha", "floor"),
    [(100, 0.4, 100_000), (100, 0.01, 100_000_000), (31, 0.3, 20_000), (60, 0.45, 50_000), (2, 0.2, 900), (1, 0.2, 9)],
)
def test_reports_of_sites_that_spend_every_event_on_a_report_reach_the_bound(
    sites: int, alpha: float, floor: int
) -> None:
    """The site that is nearest to its next report counts next. So the first report of most sites needs less than a
    step: with phases spread evenly, half a step.
    """
    coordinator, _, members = world(sites, floor, alpha, "deterministic", sites)
    reports = 0
    while coordinator.known_total < floor:
        site = min(members, key=lambda each: each.next_at - each.count)
        (report,) = site.advance(site.next_at)
        coordinator.receive(site.site_id, report)
        reports += 1
    most = sites / (2 * alpha) + sites / 2 + 1
    assert most - 2 < reports <= most


def test_first_reports_of_all_slots_need_half_a_step_on_average() -> None:
    """The lemma of the bound, for every small number of slots and every small step."""
    for slots, step in product(range(1, 41), range(2, 61)):
        estimator = BelowFloor(step, slots, 0.1, 100)
        points = [estimator.trigger(slot).start(0, SeededRandom(1)).next_at for slot in range(slots)]
        assert 2 * sum(points) >= slots * step


def test_sites_that_join_ahead_of_a_window_start_no_rounds() -> None:
    coordinator, network, _ = world(50, 10_000, 0.05, "auto", 50)
    assert coordinator.round == 0
    assert network.traffic.total == 100
    coordinator, network, _ = world(50, 10_000, 0.05, "auto", 1)
    assert coordinator.round > 0
    assert network.traffic.total < 400


def test_window_that_all_sites_have_left_is_known_exactly() -> None:
    coordinator, network, members = world(20, 5000, 0.05, "auto", 20)
    for number, site in enumerate(members):
        network.send(site.site_id, site.advance(number * 17))
    for site in members:
        network.remove_site(site.site_id, coordinator.leave, site.snapshot())
    assert (coordinator.sites, coordinator.known_total) == (0, 17 * 190)


def test_exact_scheme_has_no_use_for_a_floor() -> None:
    coordinator, network, members = world(3, 5000, 0.05, "exact", 3)
    network.send(members[0].site_id, members[0].advance(7))
    assert (coordinator.answer.estimate, coordinator.answer.state) == (7, "exact")


def test_restart_below_the_floor_keeps_the_bound() -> None:
    coordinator, network, members = world(10, 10_000, 0.05, "auto", 10)
    for site in members:
        network.send(site.site_id, site.advance(300))
    again = Coordinator(
        "c", scheme_named("auto"), SeededRandom(2), alpha=0.05, delta=0.05, floor=10_000,
        saved_state=coordinator.saved_state,
    )  # fmt: skip
    by_id = {site.site_id: site for site in members}
    for site_id, message in again.recover():
        assert isinstance(message, StartRound)
        for reply in by_id[site_id].receive(message):
            assert isinstance(reply, Snapshot)
            again.receive(site_id, reply)
    assert again.answer.contains(3000)
    assert again.answer.floor == 10_000


def test_sites_that_were_expected_get_no_reserve_of_slots() -> None:
    """Each number of slots needs a plan of its own, so the number must not change while expected sites join."""
    coordinator, network, members = world(3, 100, 0.1, "deterministic", 8)
    network.send(members[0].site_id, members[0].advance(200))
    assert coordinator.round == 1
    for number in range(3, 8):
        coordinator.join(SiteId(number), Snapshot("c", 0, 0))
        assert (coordinator.debug_state().joined, coordinator.next_context.slots) == (0, 8)
    coordinator.join(SiteId(8), Snapshot("c", 0, 0))
    assert (coordinator.debug_state().joined, coordinator.next_context.slots) == (1, 11)
