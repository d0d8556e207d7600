"""`sampled`: a coin for each event; the answers do not depend on the sites at which events happen.

One tape of coins, indexed by the global number of the event, gives the same answers after every event, however the
events are spread over the sites. With each site drawing its own gaps this is equality in law.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.core.coordinator import Coordinator
from countless.core.estimator import Scheme
from countless.core.messages import DownMessage, Report, SiteId, Snapshot, StartRound, UpMessage
from countless.core.triggers import BernoulliSampling
from countless.planning.sampled import plan_sampled
from countless.randomness import SeededRandom
from countless.schemes.sampled import Sampled as SampledScheme
from support.schemes import Plain
from support.worlds import COUNTER

STEP = 4


class TapeSite:
    """A site whose coins are on a tape that all sites share."""

    def __init__(self) -> None:
        self.count = self.round = self.crossings = 0
        self.sampled = False

    def event(self, head: bool) -> tuple[UpMessage, ...]:
        self.count += 1
        if self.sampled and not head:
            return ()
        self.crossings += 1
        return (Report(COUNTER, self.round, self.count, self.crossings),)

    def receive(self, message: DownMessage, head: bool) -> tuple[UpMessage, ...]:
        self.round, self.crossings, self.sampled = message.round, 0, isinstance(message.trigger, BernoulliSampling)
        if isinstance(message, StartRound):
            return (Snapshot(COUNTER, self.round, self.count),)
        # It reported an event before it received the trigger of the round; now the coin of that event decides.
        if message.from_count < self.count and head:
            self.crossings = 1
            return (Report(COUNTER, self.round, self.count, 1),)
        return ()


def answers(scheme: Scheme, sites: list[int], tape: list[bool]) -> list[float]:
    """The published answers when event t happens at sites[t]."""
    coordinator = Coordinator(
        COUNTER, scheme, SeededRandom(1), alpha=0.2, delta=0.1, fleet=[SiteId(name) for name in range(6)]
    )
    world = {SiteId(name): TapeSite() for name in range(6)}
    published = []
    for name, head in zip(sites, tape, strict=True):
        site_id = SiteId(name)
        queue: list[tuple[SiteId, UpMessage]] = [(site_id, message) for message in world[site_id].event(head)]
        while queue:
            speaker, message = queue.pop(0)
            for to, down in coordinator.receive(speaker, message):
                queue += [(to, reply) for reply in world[to].receive(down, head)]
        published.append(coordinator.published)
    return published


assignments = st.lists(st.integers(0, 5), min_size=150, max_size=150)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 10**6), assignments, assignments)
def test_assignment_of_events_to_sites_does_not_change_the_answers(
    seed: int, left: list[int], right: list[int]
) -> None:
    rng = SeededRandom(seed)
    tape = [rng.randbelow(STEP) == 0 for _ in range(150)]
    scheme = Plain("sampled", start=20, step=STEP, reports=7)
    assert answers(scheme, left, tape) == answers(scheme, right, tape)


def test_assignment_of_events_does_not_change_a_sampled_round() -> None:
    """With a real plan; the first round starts from an exact total, so the step is the same for all assignments."""
    plan = plan_sampled(6, 0.2, 0.01, least_step=2)
    start = next(total for total in range(1, 10**6) if plan.step(total) >= 2)
    rng, events = SeededRandom(3), start + plan.reports
    tape = [rng.randbelow(2) == 0 for _ in range(events)]
    spread = [rng.randbelow(6) for _ in range(events)]
    runs = [
        answers(SampledScheme(plan), sites, tape)
        for sites in ([0] * events, spread, [number % 6 for number in range(events)])
    ]
    assert runs[0] == runs[1] == runs[2]
    assert runs[0][-1] > start


@pytest.mark.parametrize("sites", [1, 3])
def test_gaps_drawn_by_each_site_have_the_law_of_one_sequence(sites: int) -> None:
    """Heads among 12 events, 6,000 runs, against the binomial law: 8 cells, 7 degrees, P(chi-square > 70) < 2e-12."""
    size, events, step = 6_000, 12, 3
    seen = [0] * 8
    for run in range(size):
        heads = 0
        for site in range(sites):
            rng = SeededRandom(17).spawn(run, site)
            state, mine = BernoulliSampling(step).start(0, rng), events // sites
            if mine >= state.next_at:
                heads += BernoulliSampling(step).advance(mine, state, rng)
        seen[min(heads, 7)] += 1
    law = [1.0]  # the binomial law, one coin after the other
    for _ in range(events):
        law = [
            (law[i] if i < len(law) else 0) * (1 - 1 / step) + (law[i - 1] if i else 0) / step
            for i in range(len(law) + 1)
        ]
    law = [*law[:7], sum(law[7:])]
    assert sum((count - size * p) ** 2 / (size * p) for count, p in zip(seen, law, strict=True)) < 70
