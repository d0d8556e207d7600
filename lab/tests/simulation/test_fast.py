"""The fast engine gives the transcript of the reference, message for message and estimate for estimate."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core.messages import Message, SiteId
from countless.errors import InvalidParameter
from countless.schemes.registry import SCHEMES
from countless_lab.simulation.fast import FastWorld
from countless_lab.simulation.referee import Referee
from countless_lab.simulation.registry import STREAMS, stream_named
from countless_lab.simulation.run import fast_run
from countless_lab.simulation.stream import Stream
from countless_lab.simulation.world import World

SCHEME_NAMES = list(SCHEMES)
ALPHAS = [0.05, 0.1, 0.2, 0.3]


class Transcript(list[tuple[SiteId, Message]]):
    """A tap that keeps every message with its site."""

    def __call__(self, site_id: SiteId, message: Message) -> None:
        self.append((site_id, message))


def reference_run(
    scheme: str, stream: Stream, events: int, *, alpha: float, seed: int, tap: Transcript
) -> tuple[World, Referee]:
    """Play every event of a stream, one by one."""
    world = World(scheme, range(stream.fleet), alpha=alpha, delta=0.05, seed=seed, tap=tap)
    referee = Referee(alpha)
    arrivals = [arrival for arrival in stream.arrivals if arrival[0] <= events]
    for number, site in enumerate(stream.order(events), 1):
        while arrivals and arrivals[0][0] < number:
            world.join(arrivals.pop(0)[1])
            referee.judge(world.estimate, world.total)
        referee.judge(world.add(site), number)
    for _, name in arrivals:
        world.join(name)
        referee.judge(world.estimate, world.total)
    return world, referee


def compare(scheme: str, name: str, sites: int, alpha: float, events: int, seed: int) -> int:
    """Run both engines and compare them; the number of messages."""
    stream = stream_named(name, sites, events, seed)
    slow_transcript, fast_transcript = Transcript(), Transcript()
    slow, referee = reference_run(scheme, stream, events, alpha=alpha, seed=seed, tap=slow_transcript)
    fast = FastWorld(scheme, stream, alpha=alpha, delta=0.05, seed=seed, tap=fast_transcript)
    fast.run(events)
    assert fast_transcript == slow_transcript
    assert (fast.answer, fast.messages, fast.total) == (slow.answer, slow.messages, slow.total)
    assert (fast.referee.worst, fast.referee.violated_at) == (referee.worst, referee.violated_at)
    return len(slow_transcript)


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("scheme", SCHEME_NAMES)
def test_engines_agree_for_every_scheme_on_every_stream(scheme: str, name: str) -> None:
    assert compare(scheme, name, sites=12, alpha=0.2, events=2_500, seed=5) > 10


@settings(max_examples=30)
@given(
    scheme=st.sampled_from(SCHEME_NAMES),
    name=st.sampled_from(list(STREAMS)),
    sites=st.integers(1, 40),
    alpha=st.sampled_from(ALPHAS),
    events=st.integers(1, 3_000),
    seed=st.integers(0, 10**6),
)
def test_engines_agree_on_random_runs(scheme: str, name: str, sites: int, alpha: float, events: int, seed: int) -> None:
    compare(scheme, name, sites, alpha, events, seed)


@pytest.mark.soak
@settings(max_examples=60)
@given(
    scheme=st.sampled_from(SCHEME_NAMES),
    name=st.sampled_from(list(STREAMS)),
    sites=st.sampled_from([1, 2, 7, 30, 200]),
    alpha=st.sampled_from(ALPHAS),
    events=st.integers(1, 20_000),
    seed=st.integers(0, 10**6),
)
def test_engines_agree_on_long_runs(scheme: str, name: str, sites: int, alpha: float, events: int, seed: int) -> None:
    compare(scheme, name, sites, alpha, events, seed)


def test_engines_agree_after_every_seventh_event() -> None:
    stream = stream_named("zipf", 8, 1_500, seed=3)
    fast = FastWorld("lattice", stream, alpha=0.2, delta=0.05, seed=3)
    for number in range(1, 1_501, 7):
        fast.run(number)
        slow, _ = reference_run("lattice", stream, number, alpha=0.2, seed=3, tap=Transcript())
        assert (fast.estimate, fast.round, fast.messages) == (slow.estimate, slow.round, slow.messages)


@pytest.mark.parametrize("scheme", ["deterministic", "lattice", "dithered"])
def test_messages_grow_with_the_logarithm_of_events(scheme: str) -> None:
    stream = stream_named("uniform", 50, 10**12, seed=1)
    outcome = fast_run(scheme, stream, 10**12, alpha=0.1, delta=1e-9, seed=1)
    assert outcome.inside
    assert outcome.worst_error_over_alpha <= 1
    assert outcome.messages.total < 20_000
    assert outcome.course[-1].events == outcome.events == 10**12
    counts = [point.messages for point in outcome.course]
    assert counts == sorted(counts)


def test_progress_rises_to_one() -> None:
    parts: list[float] = []
    stream = stream_named("uniform", 50, 10_000, seed=1)
    fast_run("exact", stream, 10_000, alpha=0.1, delta=0.1, seed=1, progress=parts.append)
    assert parts == sorted(parts)
    assert parts[-1] == 1
    assert len(parts) > 100


def test_heap_does_not_grow_with_events() -> None:
    stream = stream_named("uniform", 20, 10**9, seed=1)
    fast = FastWorld("dithered", stream, alpha=0.1, delta=0.1, seed=1)
    longest = 0
    for mark in range(10**6, 10**8, 10**6):
        fast.run(mark)
        longest = max(longest, fast.debug_state()["heap"])
    assert longest <= 4 * 20 + 101


def test_invalid_alpha_and_scheme_are_refused() -> None:
    stream = stream_named("uniform", 5, 100, seed=1)
    with pytest.raises(InvalidParameter, match="alpha"):
        FastWorld("auto", stream, alpha=0.7, delta=0.1, seed=1)
    with pytest.raises(InvalidParameter, match="scheme"):
        FastWorld("nonsense", stream, alpha=0.1, delta=0.1, seed=1)
