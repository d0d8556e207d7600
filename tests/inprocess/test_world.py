"""One network for counters, families and budgets, and one way to name their sites."""

from collections.abc import Callable
from typing import Any

import pytest

from countless import Budget, Distribution, Family, Tracker
from countless.core.coordinator import Coordinator
from countless.core.messages import Report, SetTrigger, SiteId, Snapshot
from countless.core.site import Site
from countless.errors import InvalidParameter, ProtocolError, UnknownName
from countless.inprocess.world import Meter, World
from countless.randomness import SeededRandom
from countless.schemes.exact import Exact

A, B = SiteId("a"), SiteId("b")


def budget(sites: int) -> Budget:
    return Budget(limit=100, sites=sites)


EVERY_KIND = pytest.mark.parametrize("new", [Tracker, Family, Distribution, budget])


@EVERY_KIND
def test_number_that_is_free_again_is_given_again(new: Callable[..., Any]) -> None:
    made = new(sites=3)
    made.remove_site(2)
    with pytest.raises(UnknownName):
        made.site(2)
    assert made.add_site() is made.site(2)


@EVERY_KIND
def test_name_that_is_taken_or_of_another_type_is_refused(new: Callable[..., Any]) -> None:
    made = new(sites=3)
    for name in (0, True, 1.5, b"web"):
        with pytest.raises(InvalidParameter):
            made.add_site(name)
    unhashable: list[str] = []
    for unknown in (3, "0", unhashable):
        with pytest.raises(UnknownName):
            made.site(unknown)


def exact_world(meter: Meter | None = None) -> World[Coordinator, Site]:
    coordinator = Coordinator("hits", Exact(), SeededRandom(1), alpha=0.1, delta=0.1)
    return World(coordinator, {}, meter)


def test_tap_sees_each_message_before_its_receiver_does() -> None:
    seen: list[tuple[object, int]] = []
    world = exact_world(Meter(lambda site_id, message: seen.append((message, world.coordinator.known_total))))
    site = Site("hits", A, SeededRandom(1))
    world.add_site(A, site, world.coordinator.join, site.snapshot())
    assert world.send(A, site.add(3)) == []
    world.remove_site(A, world.coordinator.leave, site.snapshot())
    assert [(type(message), known) for message, known in seen] == [
        *((Snapshot, 0), (SetTrigger, 0)),
        *((Report, 0), (Snapshot, 3)),
    ]
    assert (world.traffic.up, world.traffic.down, world.traffic.bytes) == (3, 1, None)


def test_input_that_the_coordinator_rejects_leaves_sites_and_traffic_as_they_were() -> None:
    world = exact_world(Meter(count_bytes=True))
    site = Site("hits", A, SeededRandom(1))
    world.add_site(A, site, world.coordinator.join, site.snapshot())
    before = world.traffic
    with pytest.raises(ProtocolError):
        world.add_site(B, Site("hits", B, SeededRandom(1)), world.coordinator.join, Snapshot("hits", 1 << 63, 0))
    with pytest.raises(ProtocolError):
        world.remove_site(A, world.coordinator.leave, Snapshot("hits", 7, 0))
    assert (list(world.sites), world.traffic) == ([A], before)


def test_worlds_with_one_meter_are_counted_together() -> None:
    meter = Meter()
    for world in (exact_world(meter), exact_world(meter)):
        site = Site("hits", A, SeededRandom(1))
        world.add_site(A, site, world.coordinator.join, site.snapshot())
    assert meter.traffic.up == 2


def test_messages_of_a_window_still_count_when_reading_them_closes_it() -> None:
    now = 0.0
    family = Family(sites=2, per="minute", clock=lambda: now)
    for number in range(50):
        family.site(number % 2).add("x")
    before = family.messages.total
    now = 60.0
    assert family.messages.total > before
