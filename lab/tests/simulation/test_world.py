"""The reference world is a Tracker without locks: same seed, same transcript."""

import pytest

from countless.core.messages import SiteId
from countless.errors import InvalidParameter, UnknownName
from countless.schemes.registry import SCHEMES
from countless_lab.simulation.world import World
from support.streams import stream_named
from support.trackers import Line, tapped_tracker


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_world_has_the_transcript_of_a_tracker(scheme: str) -> None:
    tracker, theirs = tapped_tracker(sites=10, alpha=0.2, delta=0.01, scheme=scheme, seed=4)
    ours: list[Line] = []
    world = World(
        scheme, 10, alpha=0.2, delta=0.01, seed=4, tap=lambda site_id, message: ours.append((site_id, message))
    )
    for event, (site, n) in enumerate(stream_named("bursts", 10, 5_000, seed=2)):
        if event == 100:
            tracker.remove_site(3)
            world.leave(3)
        if event == 200:
            tracker.add_site(3)
            world.join(3)
        if site != 3 or event > 200:
            tracker.site(site).add(n)
            assert world.add(site, n) == tracker.answer.estimate
    assert ours == theirs
    assert (world.answer, world.messages, world.total) == (tracker.answer, tracker.messages, tracker.total)
    assert world.round == tracker.answer.round


def test_sites_join_and_leave_by_name() -> None:
    world = World("exact", ["a", "b"], alpha=0.1, delta=0.1, seed=1)
    world.add("a", 3)
    assert world.join() == 2
    assert world.join("c") == "c"
    world.leave("a")
    assert world.sites == ("b", 2, "c")
    assert (world.total, world.estimate) == (3, 3)
    assert world.site("b").count == 0
    assert "total 3" in repr(world)


def test_same_name_again_is_the_next_incarnation() -> None:
    world = World("exact", 1, alpha=0.1, delta=0.1, seed=1)
    world.add(0, 5)
    world.leave(0)
    world.join(0)
    world.add(0, 2)
    assert world.site(0).site_id == SiteId(0, 1)
    assert (world.total, world.estimate) == (7, 7)


def test_invalid_input_is_refused_and_changes_nothing() -> None:
    world = World("exact", 2, alpha=0.1, delta=0.1, seed=1)
    with pytest.raises(UnknownName, match="site = 7"):
        world.add(7)
    with pytest.raises(UnknownName):
        world.leave(7)
    with pytest.raises(InvalidParameter, match="not taken"):
        world.join(1)
    with pytest.raises(InvalidParameter, match="at least 0"):
        world.add(1, -1)
    assert (world.total, world.messages.total) == (0, 0)


@pytest.mark.parametrize(
    ("sites", "alpha", "delta"), [(-1, 0.1, 0.1), ("ab", 0.1, 0.1), ([1, 1], 0.1, 0.1), (2, 0.5, 0.1), (2, 0.1, 0)]
)
def test_invalid_parameters_are_refused(sites: int, alpha: float, delta: float) -> None:
    with pytest.raises(InvalidParameter):
        World("exact", sites, alpha=alpha, delta=delta, seed=1)
