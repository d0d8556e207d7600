"""The oblivious schemes can be broken, by how much, and by which adversary.

At k = 1,024, alpha = 1 %, stop after jump leads `lattice` and `blocks` more than sqrt(k)/4 = 8 times alpha away from
the total. For `hyz` no adversary can do that from above: a site is never overestimated by more than a step, so the
error is at most k steps, and the plan that proves all moments at once for delta = 0.05 has an allowance E of 145
steps or more, so it stays below k/(E + alpha k) < 7. `hyz` is broken in three ways here: by more than sqrt(k)/7 from
above; by more than sqrt(k)/4 from below, where the gap between reports has no limit, at a smaller alpha (with k = 256
in `make test`); and by more than sqrt(k)/4 from above with the calibration of the literature, two standard deviations
(`hyz-classical`).
"""

from math import sqrt

import pytest

from countless_lab.arena.adversaries.leave_before_jump import LeaveBeforeJump
from countless_lab.arena.match import Setting, Tracked, play
from countless_lab.arena.registry import adversary_named
from countless_lab.planning.hyz import plan_hyz

pytestmark = pytest.mark.slow

SITES = 1024
JUMP = adversary_named("stop-after-jump")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("scheme", "alpha", "events", "factor"),
    [
        ("lattice", 0.01, 300_000, sqrt(SITES) / 4),
        ("blocks", 0.01, 1_200_000, sqrt(SITES) / 4),
        ("hyz-classical", 0.01, 500_000, sqrt(SITES) / 4),
        ("hyz", 0.01, 800_000, sqrt(SITES) / 7),
    ],
)
def test_stop_after_jump_breaks_oblivious_schemes(scheme: str, alpha: float, events: int, factor: float) -> None:
    assert play(Setting(scheme, JUMP, SITES, alpha, 0.05, events), 1).over > factor


@pytest.mark.parametrize(
    ("sites", "alpha", "events"),
    [(256, 0.002, 200_000), pytest.param(SITES, 0.001, 10**6, marks=pytest.mark.soak)],
)
def test_leave_before_jump_breaks_hyz_from_below(sites: int, alpha: float, events: int) -> None:
    setting = Setting("hyz", LeaveBeforeJump(gap=3.1), sites, alpha, 0.05, events)
    assert play(setting, 1).under > sqrt(sites) / 4


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.05])
def test_hyz_cannot_be_led_that_far_from_above(alpha: float) -> None:
    # The first round has the largest share of delta, and k steps is the largest possible error.
    assert SITES / plan_hyz(SITES, alpha, 0.05 / 2).allowance < sqrt(SITES) / 4


@pytest.mark.parametrize("adversary", ["stop-after-jump", "autoscaler"])
def test_oblivious_schemes_break_in_small_fleets(adversary: str) -> None:
    for scheme in ("hyz", "blocks", "lattice"):
        setting = Setting(scheme, adversary_named(adversary), 256, 0.05, 0.05, 100_000)
        assert play(setting, 1).violated_at is not None, scheme


def test_site_chosen_by_the_last_answer_leads_lattice_as_far_as_it_can_go() -> None:
    """design/proofs/oblivious.md, section 7: certain, whatever was drawn."""
    sites, alpha = 16, 0.05
    for seed in range(5):
        tracker = Tracked("lattice", sites, alpha=alpha, delta=0.05, seed=seed)
        for site in range(sites):
            tracker.add(site, 5_000)
        running = tracker.round
        while tracker.round == running:
            tracker.add(0)
        step = tracker.step(0)
        for _ in range(sites + 1):
            answer = tracker.estimate
            site = int(answer // step) % sites
            while tracker.estimate == answer:
                tracker.add(site, tracker.events_until_report(site) + 1)
        assert tracker.round == running + 1
        assert tracker.estimate - tracker.total == sites * (step - 1) / 2
        assert tracker.estimate > (1 + alpha) * tracker.total


# The same adversary with access to the message counter (docs/understand/threat-model.md).
@pytest.mark.parametrize("scheme", ["dithered", "lattice"])
def test_message_reader_breaks_schemes_with_secrets(scheme: str) -> None:
    setting = Setting(scheme, adversary_named("message-reader"), 256, 0.05, 0.05, 20_000)
    assert play(setting, 1).violated_at is not None


# One game at delta = 1e-6: false alarm at most one in a million.
def test_message_reader_does_not_break_sampled() -> None:
    setting = Setting("sampled", adversary_named("message-reader"), 256, 0.1, 1e-6, 20_000)
    assert play(setting, 1).violated_at is None


def test_auto_against_sees_everything_holds() -> None:
    reader = adversary_named("message-reader")
    assert play(Setting("auto", reader, 256, 0.05, 1e-6, 20_000, "sees-everything"), 1).violated_at is None
