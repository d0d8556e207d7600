"""The lattice family: right on average over all offsets; rounds that do not depend on offsets; the law of errors."""

from collections import Counter
from collections.abc import Iterator

import pytest

from countless.core.family.messages import LabelReport, SetSteps, Steps, Totals
from countless.core.messages import SiteId
from countless.errors import InvalidParameter
from countless.inprocess.world import LabelWorld
from countless.randomness import SeededRandom
from countless_lab.lattice_family import LatticeCoordinator, LatticeFamily, LatticeSite, LatticeSteps
from countless_lab.simulation.labels import zipf_labels


class Scripted(SeededRandom):
    """A random source that draws given numbers."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(0)
        self._numbers: Iterator[int] = iter(numbers)

    def randbelow(self, n: int) -> int:
        number = next(self._numbers)
        assert 0 <= number < n
        return number


def network(sites: int, epsilon: float = 0.05, seed: int = 1) -> LabelWorld:
    fleet = [SiteId(name) for name in range(sites)]
    rng = SeededRandom(seed)
    coordinator = LatticeCoordinator("f", LatticeSteps(epsilon, 0.05), fleet=fleet)
    return LabelWorld(coordinator, fleet, lambda site_id: LatticeSite("f", rng.spawn(*site_id[:2])))


def last_report(messages: tuple[object, ...]) -> LabelReport:
    return [message for message in messages if isinstance(message, LabelReport)][-1]


@pytest.mark.parametrize("step", [2, 3, 7])
@pytest.mark.parametrize("batches", [(1,) * 16, (5, 1, 8), (16,)])
def test_credits_of_a_label_are_its_count_on_average_over_all_offsets(step: int, batches: tuple[int, ...]) -> None:
    credited = dict.fromkeys(range(17), 0)
    for offset in range(step):
        site = LatticeSite("f", Scripted(0, offset))  # the total has an offset of its own
        site.receive(SetSteps("f", 1, Steps(step, 1, 1000)))
        count = known = 0
        for n in batches:
            count += n
            for message in site.add("x", n):
                if isinstance(message, LabelReport) and message.counts:
                    ((_, known),) = message.counts
            credited[count] += known
            assert abs(known - count) < step
    count = 0
    for n in batches:
        count += n
        assert credited[count] == step * count


@pytest.mark.parametrize("step", [3, 7])
@pytest.mark.parametrize("before", [0, 5])
def test_estimate_of_the_total_is_right_on_average_from_the_start_of_a_round(step: int, before: int) -> None:
    estimates = dict.fromkeys(range(11), 0)
    for offset in range(step):
        site = LatticeSite("f", Scripted(*[0] * min(before, 1), offset, 0))
        if before:
            site.add("x", before)
        estimate = last_report(site.receive(SetSteps("f", 1, Steps(1, step, 1000)))).total
        for count in range(11):
            estimates[count] += estimate
            estimate = last_report(site.add("x")).total
            assert abs(estimate - site.total) <= (step - 1) // 2
    assert estimates == {count: step * (before + count) for count in range(11)}


def test_rounds_do_not_depend_on_offsets() -> None:
    families = [network(sites=10, seed=seed) for seed in (1, 2, 3)]
    rounds: list[list[int]] = [[], [], []]
    for site, label in zipf_labels(sites=10, labels=100, events=5_000, seed=1):
        for family, seen in zip(families, rounds, strict=True):
            family.add(SiteId(site), label, 1)
            family.coordinator.check()
            seen.append(family.coordinator.round)
    assert rounds[0] == rounds[1] == rounds[2]
    assert rounds[0][-1] >= 3
    assert len({family.coordinator.total().estimate for family in families}) == 3


@pytest.mark.slow
def test_intervals_hold_at_a_fixed_moment() -> None:
    """400 runs of a stream that leaves the label of every site near the middle between two points.

    Each of the two intervals fails with probability 5 % at most. By Chernoff, 60 failures of 400 have a probability
    below 7e-13, so a correct program fails this test with a probability below 2e-12.
    """
    failures = {"x": 0, "total": 0}
    for seed in range(400):
        family = LatticeFamily(sites=16, epsilon=0.2, seed=seed)
        for site in range(16):
            for label, n in (("y", 60), ("x", 13), ("y", 40), ("x", 9)):
                family.site(site).add(label, n)
        failures["x"] += not family.answer("x").contains(16 * 22)
        failures["total"] += not family.total().contains(16 * 122)
    assert max(failures.values()) < 60


def test_departed_site_leaves_its_exact_total() -> None:
    family = network(sites=2, epsilon=0.2)
    for number in range(1000):
        family.add(SiteId(number % 2), "x", 1)
    assert family.coordinator.round > 0
    family.leave(SiteId(0))
    family.leave(SiteId(1))
    total = family.coordinator.total()
    assert (total.lower, total.upper) == (1000, 1000)


def test_site_whose_leave_starts_a_round_is_not_sent_its_steps() -> None:
    family = network(sites=3, epsilon=0.2)
    for number in range(200):
        family.add(SiteId(number % 3), "x", 1)
    family.add(SiteId(0), "x", 1)
    before = family.coordinator.round
    assert family.leave(SiteId(0)) == 68
    assert family.coordinator.round > before
    assert list(family.sites) == [SiteId(1), SiteId(2)]


def test_site_beyond_the_slots_reports_every_event_until_there_is_room() -> None:
    family = network(sites=1, epsilon=0.1)
    family.add(SiteId(0), "x", 1_000)
    joined = SiteId("new")
    family.join(joined)
    assert family.coordinator.debug_state().untold == (joined,)
    before = family.traffic.up
    for _ in range(20):
        family.add(joined, "x", 1)
    assert family.traffic.up >= before + 20
    family.add(joined, "x", 400)
    assert family.coordinator.debug_state().untold == ()
    family.coordinator.check()


def test_lost_report_is_sent_again_after_a_new_connection() -> None:
    coordinator = LatticeCoordinator("f", LatticeSteps(0.1, 0.05), fleet=[SiteId(0)])
    site = LatticeSite("f", SeededRandom(1))
    site.add("x", 7)  # and the report is lost
    sync, report = site.resume()
    assert isinstance(sync, Totals)
    ((_, resend),) = coordinator.join(SiteId(0), sync)
    coordinator.receive(SiteId(0), report)
    for message in site.receive(resend):
        coordinator.receive(SiteId(0), message)
    assert coordinator.answer("x").estimate == coordinator.total().estimate == 7


@pytest.mark.parametrize("delta", [0, 1, "0.1"])
def test_delta_out_of_range_is_refused(delta: float) -> None:
    with pytest.raises(InvalidParameter, match="delta"):
        LatticeSteps(0.1, delta)


@pytest.mark.soak
def test_a_million_events_of_ten_thousand_labels_cost_few_messages() -> None:
    family, truth = LatticeFamily(sites=100, epsilon=0.01, seed=1), Counter[str]()
    sites = [family.site(name) for name in family.sites]
    for site, label in zipf_labels(sites=100, labels=10_000, events=1_000_000, seed=1):
        sites[site].add(label)
        truth[label] += 1
    assert family.messages.total <= 30_000
    assert family.total().contains(1_000_000)
    assert all(family.answer(label).contains(count) for label, count in truth.items())
    heavy = {label for label, count in truth.items() if count >= 20_000}
    assert heavy <= {str(each.label) for each in family.top(share=0.02).labels}


def test_windows_are_families_of_their_own() -> None:
    start = now = 1_763_002_800
    family = LatticeFamily(sites=3, epsilon=0.1, seed=1, per="hour", clock=lambda: now)
    for number in range(9_000):
        now = start + number
        family.site(number % 3).add(f"label-{number % 4}", 3)
    assert family.total("last").contains(3 * 3600)
    assert family.total("now").contains(3 * 1800)
