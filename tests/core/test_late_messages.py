"""Messages that arrive late: cases that random runs on a faulty network have found."""

from countless.core.answer import State
from countless.core.messages import SetTrigger, SiteId, StartRound
from countless.schemes.dithered import Dithered
from countless.schemes.exact import Exact
from support.schemes import Plain
from support.worlds import HeldWorld, World

FLEET = (SiteId(0), SiteId(1))


def test_site_may_join_during_a_synchronisation() -> None:
    """The estimator has not started then; when it starts, the new site is one of its sites."""
    world = HeldWorld(Dithered(), FLEET, alpha=0.2, delta=1e-9)
    while world.coordinator.answer.state is not State.HOLDING or world.total < 3000:
        for site_id in FLEET:
            world.add(site_id)
            world.deliver_all()
    before = world.total
    world.join(SiteId("first"), count=7)  # no slot is free: a round with more slots starts
    assert [(site_id.site, type(message)) for site_id, message in world.wire] == [
        (name, StartRound) for name in (0, 1, "first")
    ]
    world.join(SiteId("second"), count=7)
    site_id, message = world.wire[-1]
    assert isinstance(message, SetTrigger)
    assert (site_id.site, message.from_count) == ("second", 7)
    world.deliver_all()
    assert world.coordinator.answer.sites == 4
    assert world.coordinator.known_total == world.total == before + 14


def test_late_join_message_does_not_restart_the_sampling() -> None:
    """The SetTrigger repeats the round start, so the site ignores it; from the last report it would draw again."""
    world = World(Plain("sampled", start=10, step=4, reports=1000), 1)
    site = world.site(0)
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


def test_snapshot_that_a_report_has_overtaken_does_not_make_the_next_report_implausible() -> None:
    """Between the two the site is unreachable for a moment, and its start is taken from the report."""
    world = HeldWorld(Exact(), FLEET, alpha=0.2)
    world.restart()
    world.deliver()
    world.add(SiteId(0))
    world.deliver(len(world.wire) - 1)  # the report, before the snapshot
    world.time_out(SiteId(0))
    world.add(SiteId(0))
    world.deliver_all()
    assert world.coordinator.known_total == world.total == 2
