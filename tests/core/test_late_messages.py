"""Messages that arrive late: cases found by the faulty world (tests/lab/simulation/failing_seeds.txt)."""

from countless.core.answer import State
from countless.core.messages import SetTrigger, SiteId
from countless.core.site import Site
from countless.randomness import SeededRandom
from countless.schemes.dithered import Dithered
from support.schemes import Plain
from support.worlds import COUNTER, World, asked


def test_site_may_join_during_a_synchronisation() -> None:
    """The estimator has not started then; when it starts, the new site is one of its sites."""
    world = World(Dithered(), 2, alpha=0.2)
    while world.coordinator.answer.state is not State.HOLDING or world.total < 3000:
        world.add(0)
        world.add(1)
    before = world.total
    first, second = (Site(COUNTER, SiteId(name), SeededRandom(2), count=7) for name in ("first", "second"))
    outbox = world.coordinator.join(first.site_id, first.snapshot())  # no slot is free: a round with more slots starts
    assert asked(outbox) == [0, 1, "first"]
    ((site_id, message),) = later = world.coordinator.join(second.site_id, second.snapshot())
    assert isinstance(message, SetTrigger)
    assert (site_id, message.from_count) == (second.site_id, 7)
    world.sites |= {first.site_id: first, second.site_id: second}
    world.settle(outbox + later)
    assert world.coordinator.answer.sites == 4
    assert world.coordinator.known_total == world.total == before + 14


def test_late_join_message_does_not_restart_the_sampling() -> None:
    """The SetTrigger repeats the round start, so the site ignores it; from the last report it would draw again."""
    world = World(Plain("sampled", start=10, step=4, reports=1000), 1)
    site = world.sites[SiteId(0)]
    old_hello = site.snapshot()
    world.add(0, 12)  # exact until 12; then the round starts, and the next report gets the trigger
    while site.crossings < 3 or site.round == 0:
        world.add(0)
    ((_, message),) = world.coordinator.join(SiteId(0), old_hello)
    assert isinstance(message, SetTrigger)
    assert message.from_count == 12
    before = (site.next_at, site.crossings)
    assert site.receive(message) == ()
    assert (site.next_at, site.crossings) == before
