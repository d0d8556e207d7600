"""What every scheme must do. The tests read the registry, so a new scheme needs no line here.

Every run has delta = 1e-9. Each `within` test makes one run of one tracker, so a correct scheme raises a false alarm
with probability at most 1e-9 in it; there are about 9 schemes * 17 runs of them, and the seeds are pinned.
"""

import pytest

from countless import Tracker
from countless.core.answer import Answer, State, within
from countless.core.coordinator import Coordinator
from countless.core.messages import DownMessage, Message, SiteId, Snapshot, StartRound
from countless.randomness import SeededRandom
from countless.schemes.registry import SCHEMES, scheme_named
from countless.wire.codec import encode
from support.streams import STREAMS, Stream, stream_named
from support.worlds import World

DELTA = 1e-9
NAMES = list(SCHEMES)
RANDOMISED = [name for name in NAMES if name not in ("exact", "deterministic", "auto")]
BATCH_BLIND = [name for name in ("exact", "lattice") if name in SCHEMES]  # `dithered`: see test_dithered

every_scheme = pytest.mark.parametrize("name", NAMES)
# (sites, alpha, events): enough events for several rounds of the schemes that have them.
SIZES = [(1, 0.1, 3_000), (2, 0.2, 3_000), (10, 0.1, 4_000), (100, 0.3, 8_000)]


def tracker_for(name: str, sites: int, alpha: float, seed: int = 1, count_bytes: bool = False) -> Tracker:
    adversary = "adaptive" if name == "auto" else SCHEMES[name].safe_against
    return Tracker(
        sites=sites,
        alpha=alpha,
        delta=DELTA,
        scheme=scheme_named(name, adversary),
        seed=seed,
        count_bytes=count_bytes,
    )


def answer_of(tracker: Tracker) -> Answer:
    """That of a tracker without windows."""
    answer = tracker.answer
    assert isinstance(answer, Answer)
    return answer


def check_after_every_event(tracker: Tracker, stream: Stream) -> None:
    total, answer = tracker.total, answer_of(tracker)
    lower, upper = answer.lower, answer.upper
    for number, (site, n) in enumerate(stream):
        tracker.site(site).add(n)
        total += n
        before, answer = answer, answer_of(tracker)
        assert answer.published >= before.published, f"event {number}: the answer fell from {before} to {answer}"
        if answer.estimate != before.estimate:
            lower, upper = answer.lower, answer.upper
            assert lower <= answer.estimate <= upper
            assert within(answer.estimate, answer.alpha, total), f"event {number}: {answer} but the total is {total}"
            assert answer.estimate > before.estimate or answer.estimate == upper, f"event {number}: fell to {answer}"
        assert lower <= total <= upper, f"event {number}: {answer} but the total is {total}"
    assert tracker.total == total


@every_scheme
def test_answer_is_exact_at_start(name: str) -> None:
    tracker = tracker_for(name, 5, 0.05)
    assert (tracker.answer.estimate, tracker.answer.state) == (0, State.EXACT)
    for total in range(1, 10):
        tracker.site(total % 5).add()
        assert (tracker.answer.estimate, tracker.answer.state) == (total, State.EXACT)


@every_scheme
@pytest.mark.parametrize("stream", STREAMS)
def test_answer_is_within_alpha_after_every_event(name: str, stream: str) -> None:
    sites, alpha, events = 20, 0.15, 4_000
    check_after_every_event(tracker_for(name, sites, alpha), stream_named(stream, sites, events, seed=1))


@pytest.mark.slow
@every_scheme
@pytest.mark.parametrize(("sites", "alpha", "events"), SIZES)
def test_answer_is_within_alpha_for_other_sizes(name: str, sites: int, alpha: float, events: int) -> None:
    check_after_every_event(tracker_for(name, sites, alpha), stream_named("uniform", sites, events, seed=2))


@pytest.mark.slow
@every_scheme
@pytest.mark.parametrize(
    ("sites", "alpha", "stream"),
    [
        (1000, 0.1, "bursts"),
        pytest.param(1000, 0.1, "uniform", marks=pytest.mark.soak),
        pytest.param(50, 0.02, "zipf", marks=pytest.mark.soak),
    ],
)
def test_answer_is_within_alpha_in_long_runs(name: str, sites: int, alpha: float, stream: str) -> None:
    check_after_every_event(tracker_for(name, sites, alpha), stream_named(stream, sites, 60_000, seed=3))


@pytest.mark.slow
@every_scheme
def test_answer_is_within_alpha_with_a_thousand_sites(name: str) -> None:
    tracker = tracker_for(name, 1000, 0.25)
    for site in range(1000):  # past the start, where everything is exact, in one go
        tracker.site(site).add(100)
    check_after_every_event(tracker, stream_named("bursts", 1000, 100_000, seed=4))


@pytest.mark.slow
@every_scheme
def test_answer_is_within_alpha_with_huge_batches(name: str) -> None:
    tracker, total = tracker_for(name, 3, 0.1), 0
    for exponent in range(0, 120, 5):
        tracker.site(exponent % 3).add(2**exponent)
        total += 2**exponent
        assert tracker.total == total
        assert tracker.answer.contains(total)


@pytest.mark.slow
@every_scheme
def test_answer_is_within_alpha_with_joins_and_departures(name: str) -> None:
    sites, rng = 8, SeededRandom(5)
    tracker = tracker_for(name, sites, 0.2)
    total = 0
    for event in range(3_000):
        present = tracker.sites
        if event % 97 == 0:
            tracker.add_site()
        elif event % 131 == 0 and len(present) > 2:
            tracker.remove_site(present[rng.randbelow(len(present))])
        elif event % 500 == 499:  # a site restarts without its state: the same name, a new incarnation
            name_again = present[rng.randbelow(len(present))]
            tracker.remove_site(name_again)
            tracker.add_site(name_again)
        else:
            n = rng.geometric(3)
            tracker.site(present[rng.randbelow(len(present))]).add(n)
            total += n
        assert tracker.total == total
        assert tracker.answer.contains(total), f"event {event}: {tracker.answer} but the total is {total}"
        assert tracker.answer.sites == len(tracker.sites)


@every_scheme
def test_total_is_exact_when_every_site_has_left_and_published_does_not_fall(name: str) -> None:
    tracker, total = tracker_for(name, 3, 0.2), 0
    for leaves in range(6):
        for site, n in stream_named("uniform", 3, 700, seed=leaves):
            tracker.site(tracker.sites[site]).add(n)
            total += n
        published = answer_of(tracker).published
        for site_name in tracker.sites:
            tracker.remove_site(site_name)
        answer = answer_of(tracker)
        assert (answer.lower, answer.estimate, answer.upper, answer.state) == (total, total, total, State.EXACT)
        assert answer.published >= max(published, total)
        for site in range(3):
            tracker.add_site(f"{leaves} {site}")
        assert answer_of(tracker).published >= answer.published
        assert tracker.answer.contains(total)
        assert within(tracker.answer.estimate, 0.2, total)


@every_scheme
def test_total_without_sites_is_exact_after_a_restart(name: str) -> None:
    world = World(scheme_named(name), 3, alpha=0.2)
    for site, n in stream_named("uniform", 3, 5_000, seed=1):
        world.add(site, n)
    for site_name in world.sites:
        world.leave(site_name)
    published = world.answer.published
    world.restart()
    answer = world.answer
    assert (answer.lower, answer.estimate, answer.upper, answer.state) == (*[world.total] * 3, State.EXACT)
    assert answer.published >= published


@every_scheme
def test_last_site_may_leave_and_another_join(name: str) -> None:
    tracker = tracker_for(name, 1, 0.2)
    tracker.site(0).add(5_000)
    assert tracker.remove_site(0) == 5_000
    assert tracker.answer.estimate == 5_000
    tracker.add_site("new").add(5_000)
    assert tracker.total == 10_000
    assert tracker.answer.contains(10_000)


@every_scheme
def test_all_sites_may_leave_with_far_more_than_they_reported(name: str) -> None:
    """As at the end of a window: every departure ends a round, the last one when no site is left."""
    scheme = scheme_named(name, "adaptive" if name == "auto" else SCHEMES[name].safe_against)
    coordinator = Coordinator("c", scheme, SeededRandom(1), alpha=0.01, delta=DELTA, expected_sites=100)
    for site in range(3):
        coordinator.join(SiteId(site), Snapshot("c", 0, 0))
    counts = [10**9, 10**11, 10**13]
    for site, count in enumerate(counts):
        coordinator.leave(SiteId(site), Snapshot("c", 0, count))
    assert coordinator.answer.contains(sum(counts))


@pytest.mark.slow
@every_scheme
def test_restart_with_all_sites_unreachable_for_a_while(name: str) -> None:
    """All sites time out, so the new round starts below the published estimate; then all rejoin."""
    world = World(scheme_named(name), 60, alpha=0.2)
    for site, n in stream_named("round_robin", 60, 20_000, seed=12):
        world.add(site, n)
    published = world.estimate
    world.restart(deliver=False)
    for site_name in world.sites:
        world.coordinator.mark_unreachable(SiteId(site_name))
    answer = world.answer
    assert (answer.state, len(answer.silent)) == (State.DEGRADED, 60)
    assert answer.estimate >= published
    for site_name in world.sites:
        world.reconnect(site_name)
    assert world.answer.state in (State.HOLDING, State.EXACT)
    for site, n in stream_named("round_robin", 60, 5_000, seed=13):
        world.add(site, n)
        assert world.answer.contains(world.total)


@pytest.mark.slow
@every_scheme
def test_traffic_counts_every_message_and_its_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[tuple[Message, bytes]] = []

    def recording_encode(message: Message) -> bytes:
        encoded.append((message, encode(message)))
        return encoded[-1][1]

    monkeypatch.setattr("countless.inprocess.world.encode", recording_encode)
    tracker = tracker_for(name, 10, 0.1, count_bytes=True)
    for site, n in stream_named("bursts", 10, 20_000, seed=6):
        tracker.site(site).add(n)
    tracker.add_site()
    tracker.remove_site(3)
    sent = tracker.messages
    down = sum(isinstance(message, DownMessage) for message, _ in encoded)
    assert (sent.down, sent.up) == (down, len(encoded) - down)
    assert sent.total == sent.words == len(encoded)
    assert sent.bytes == sum(len(data) for _, data in encoded)


def transcript_of(name: str, seed: int) -> World:
    world = World(scheme_named(name), 10, alpha=0.2, seed=seed)
    for site, n in stream_named("bursts", 10, 8_000, seed=7):
        world.add(site, n)
    world.leave(4)
    world.join("late")
    for site, n in stream_named("uniform", 4, 2_000, seed=8):
        world.add(site, n)
    return world


@every_scheme
def test_replay_from_a_seed_is_identical(name: str) -> None:
    first, second = transcript_of(name, seed=11), transcript_of(name, seed=11)
    assert first.transcript == second.transcript
    assert first.answer == second.answer


@pytest.mark.parametrize("name", RANDOMISED)
def test_different_seeds_give_different_runs(name: str) -> None:
    assert transcript_of(name, seed=11).transcript != transcript_of(name, seed=12).transcript


@every_scheme
def test_synchronisation_finds_the_exact_total(name: str) -> None:
    """When a round begins, the known total is the true total."""
    world = World(scheme_named(name), 10, alpha=0.2)
    rounds = 0
    for site, n in stream_named("uniform", 10, 8_000, seed=9):
        before, sent = world.round, len(world.transcript)
        world.add(site, n)
        if world.round != before:
            rounds += 1
            assert world.coordinator.known_total == world.total
            started = [line for line in world.transcript[sent:] if isinstance(line[1], StartRound)]
            assert len({(site_id, message.round) for site_id, message in started}) == len(started)
    if name in RANDOMISED:
        assert rounds >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", BATCH_BLIND)
def test_batch_equals_its_events(name: str) -> None:
    """Where random draws do not depend on the sizes of batches, answers agree exactly after every batch.

    A batch that runs past the end of a round is counted at its end, not in its middle, so a batch also ends where a
    round of the unit stream ends.
    """
    sites, batches, rng = 10, 1_500, SeededRandom(10)
    one_by_one, batched = tracker_for(name, sites, 0.2, seed=3), tracker_for(name, sites, 0.2, seed=3)
    batch: list[int] = []
    for site in (rng.randbelow(sites) for _ in range(batches)):
        for _ in range(rng.geometric(20)):
            before = one_by_one.answer.round
            one_by_one.site(site).add()
            batch.append(site)
            if one_by_one.answer.round != before:
                break
        batched.site(site).add(len(batch))
        batch.clear()
        assert batched.answer == one_by_one.answer
    assert name == "exact" or one_by_one.answer.round >= 2
