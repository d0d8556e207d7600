"""The independent check of a `dithered` plan: it accepts good plans and refuses every unsafe change."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import exp, log
from typing import Any

import pytest

from countless.errors import PlanError
from countless.planning.dithered.check import Tail, check_dithered, equal_widths, risks, with_risks
from countless.planning.dithered.plan import DitheredPlan, Phase
from countless.planning.dithered.planner import plan_dithered
from countless.planning.dithered.schedule import Round, candidate_rounds

SITES = 128
NUDGE = 1e-4


@cache
def good() -> DitheredPlan:
    return plan_dithered(SITES, 0.01, 1e-4)


@cache
def certain() -> DitheredPlan:
    return plan_dithered(3, 0.01, 1e-4)


def middle() -> int:
    return len(good().phases) // 2


def rebuilt(plan: DitheredPlan, phases: list[Phase]) -> DitheredPlan:
    """The plan with these lengths, dithers and slacks, and every derived number made consistent with them."""
    consistent: list[Phase] = []
    position = low = 0.0
    for phase in phases:
        end = position + phase.length
        high = end + phase.dither / 2 + phase.slack_late
        consistent.append(replace(phase, position=position, low=low, high=high))
        position, low = end, max(low, end - phase.dither / 2 - phase.slack_early)
    return replace(plan, phases=tuple(consistent))


def changed(index: int, **changes: Callable[[float], float]) -> DitheredPlan:
    """The good plan with some numbers of one phase changed, and the rest consistent with the change."""
    phases = list(good().phases)
    values: dict[str, Any] = {name: change(getattr(phases[index], name)) for name, change in changes.items()}
    phases[index] = replace(phases[index], **values)
    return rebuilt(good(), phases)


def stated(index: int, **values: float) -> DitheredPlan:
    """The good plan with wrong derived numbers in one phase."""
    phases = list(good().phases)
    changes: dict[str, Any] = dict(values)
    phases[index] = replace(phases[index], **changes)
    return replace(good(), phases=tuple(phases))


def refused(plan: DitheredPlan, condition: str, allowance: float = 1.0) -> None:
    """The check must name this condition; a larger allowance takes the accuracy condition out of the way."""
    plan = replace(plan, allowance=plan.allowance * allowance)
    with pytest.raises(PlanError) as caught:
        check_dithered(plan)
    assert condition in str(caught.value)


def test_planner_raises_when_its_round_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*request: Any) -> list[Round]:
        return [Round(allowance * 0.99, phases) for allowance, phases in candidate_rounds(*request)]

    monkeypatch.setattr("countless.planning.dithered.planner.candidate_rounds", wrong)
    with pytest.raises(PlanError, match="refused in phase"):
        plan_dithered(129, 0.01, 1e-4)


def test_planned_rounds_pass_the_check() -> None:
    check_dithered(good())
    check_dithered(certain())
    check_dithered(rebuilt(good(), list(good().phases)))


def test_safer_plans_pass_the_check() -> None:
    check_dithered(replace(good(), allowance=good().allowance * 1.1))
    check_dithered(replace(good(), phases=good().phases[:-3]))


def tightest() -> int:
    plan = good()
    stretch = (1 + plan.alpha) / (1 - plan.alpha)
    return max(range(len(plan.phases)), key=lambda j: plan.phases[j].high - stretch * plan.phases[j].low)


def test_longer_phase_is_refused() -> None:
    refused(changed(tightest(), length=lambda t: t * (1 + NUDGE)), "(1-alpha)(n0 + high_j) <= (1+alpha)(n0 + low_j)")


def test_smaller_slack_is_refused() -> None:
    for index in (0, 1, middle(), len(good().phases) - 1):
        with pytest.raises(PlanError):
            check_dithered(changed(index, slack_late=lambda x: x * (1 - NUDGE)))
        refused(changed(index, slack_early=lambda x: x * (1 - NUDGE)), "transcripts x density x tails <= risk")


def test_all_slacks_smaller_are_refused() -> None:
    smaller = [
        replace(p, slack_early=p.slack_early * (1 - NUDGE), slack_late=p.slack_late * (1 - NUDGE))
        for p in good().phases
    ]
    refused(rebuilt(good(), smaller), "transcripts x density x tails <= risk")


@pytest.mark.parametrize("name", ["slack_early", "slack_late"])
def test_slacks_without_the_threshold_resolution_are_refused(name: str) -> None:
    without: list[Phase] = []
    for phase in good().phases:
        changes: dict[str, Any] = {name: getattr(phase, name) - 0.75 * good().resolution}
        without.append(replace(phase, **changes))
    refused(rebuilt(good(), without), "transcripts x density x tails <= risk")


def test_wider_dither_is_refused() -> None:
    wider = [replace(phase, dither=phase.dither * (1 + NUDGE)) for phase in good().phases]
    refused(rebuilt(good(), wider), "(1-alpha)(n0 + high_j) <= (1+alpha)(n0 + low_j)")
    refused(changed(tightest() or 1, dither=lambda w: w * 1.01), "(1-alpha)(n0 + high_j) <= (1+alpha)(n0 + low_j)")


def test_narrower_dither_is_refused() -> None:
    narrower = [replace(phase, dither=phase.dither * (1 - 0.01)) for phase in good().phases]
    refused(rebuilt(good(), narrower), "transcripts x density x tails <= risk", allowance=2.0)


def test_dither_out_of_order_is_refused() -> None:
    length = good().phases[middle()].length
    refused(changed(middle(), dither=lambda w: w + 2.1 * length), "threshold windows in order")


def test_missing_dither_is_refused_unless_the_slack_is_certain() -> None:
    flat = [replace(phase, dither=0.0) for phase in good().phases]
    refused(rebuilt(good(), flat), "dither > 0 where the slack is not certain")


def test_more_phases_are_refused() -> None:
    last = good().phases[-1]
    refused(rebuilt(good(), [*good().phases, last]), "refused")
    generous = replace(last, risk=0.0, slack_late=good().sites / 2, slack_early=good().sites / 2)
    refused(rebuilt(good(), [*good().phases, generous]), "(1-alpha)(n0 + high_j) <= (1+alpha)(n0 + low_j)")


def test_longer_phases_are_refused() -> None:
    # the windows of the thresholds overlap less, so the same transcripts weigh more
    longer = [replace(phase, length=phase.length * 1.03) for phase in good().phases[1:]]
    refused(rebuilt(good(), [good().phases[0], *longer]), "transcripts x density x tails <= risk", allowance=2.0)


def test_smaller_allowance_is_refused() -> None:
    refused(
        replace(good(), allowance=good().allowance * (1 - 1e-6)),
        "(1-alpha)(n0 + high_j) <= (1+alpha)(n0 + low_j)",
    )


def test_smaller_alpha_is_refused() -> None:
    # the allowance is alpha n0: hold n0
    tighter = replace(good(), alpha=good().alpha * 0.999, allowance=good().allowance * 0.999)
    refused(tighter, "(1-alpha)(n0 + high_j) <= (1+alpha)(n0 + low_j)")


@pytest.mark.parametrize("sites", [SITES + 1, SITES * 10])
def test_more_sites_are_refused(sites: int) -> None:
    refused(replace(good(), sites=sites), "transcripts x density x tails <= risk")


def test_more_sites_in_a_certain_plan_are_refused() -> None:
    refused(replace(certain(), sites=certain().sites + 1), "dither > 0 where the slack is not certain")


def test_smaller_eta_is_refused() -> None:
    refused(replace(good(), eta=good().eta * 0.999), "sum of the risks <= eta")


def test_first_phase_that_may_end_before_the_first_event_is_refused() -> None:
    shorter = good().phases[0].dither / 2 + good().phases[0].slack_early - NUDGE
    refused(changed(0, length=lambda _: shorter), "T_0 - w_0/2 >= slack_early", allowance=2.0)


def test_decreasing_late_slack_is_refused() -> None:
    refused(changed(middle(), slack_late=lambda x: x * 1.5), "slack_late does not decrease")


@pytest.mark.parametrize(
    ("name", "shift", "condition"),
    [
        ("low", 0.01, "low <= a_(j-1)"),
        ("high", -0.01, "high >= b_j"),
        ("position", 0.01, "position = sum of the lengths before"),
        ("risk", -1e-7, "transcripts x density x tails <= risk"),
        ("risk", 1e-7, "sum of the risks <= eta"),
    ],
)
def test_wrong_derived_numbers_are_refused(name: str, shift: float, condition: str) -> None:
    refused(stated(middle(), **{name: getattr(good().phases[middle()], name) + shift}), condition)


@pytest.mark.parametrize("name", ["length", "dither", "slack_early", "slack_late", "low", "high", "risk"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_nan_infinite_and_negative_numbers_are_refused(name: str, value: float) -> None:
    refused(stated(middle(), **{name: value}), "refused in phase")


@pytest.mark.parametrize("change", [{"phases": ()}, {"allowance": 0.0}, {"allowance": float("nan")}, {"eta": 1.5}])
def test_empty_and_out_of_range_plans_are_refused(change: dict[str, Any]) -> None:
    refused(replace(good(), **change), "refused")


def two_phases(second: float) -> DitheredPlan:
    """The window of the first threshold ends at 12, that of the second at 11 + second/2."""
    phases = [Phase(length, dither, 0.0, 4.0, 4.0, 0.0, 0.0, 0.1) for length, dither in ((10.0, 4.0), (1.0, second))]
    return rebuilt(DitheredPlan(100, 0.1, 0.5, 100.0, (), ()), phases)


def test_check_charges_the_largest_density_of_the_next_threshold() -> None:
    """With windows that end at 12 and 12 + x the density is 1/x there. A block has two thresholds: three times that."""
    for x in (1e-3, 0.1, 1.0):
        plan = two_phases(2 + 2 * x)
        charged = log(risks(plan, equal_widths(plan))[1] / uncharged(plan))
        assert charged == pytest.approx(3 * plan.resolution / x + log(1.007), rel=0.01, abs=2e-6)
    assert min(risks(two_phases(2.0), equal_widths(two_phases(2.0)))) > 1e200  # they end together: infinite


def uncharged(plan: DitheredPlan) -> float:
    """The last risk by hand: volumes of two windows of update times, the density of the thresholds, two tails."""
    whole = 1 / plan.least_step
    (first, second), slack = plan.phases, 4.0 - plan.resolution
    windows = [(e.position + e.length - e.dither / 2, e.position + e.length + e.dither / 2) for e in (first, second)]
    (c0, d0), (c1, d1) = windows
    volume = (d0 - c0) * (d1 - c1) - (max(0.0, d0 - c1) ** 2 / 2)
    ends = [max(0.0, c0 - 4.0), max(c0 - 4.0, c1 - 4.0)]
    width, below = d0 + 4.0 + 2 * whole - ends[0], ends[1] - (ends[0] - whole)
    tail = exp(Tail(equal_widths(plan), slack).log(0.0))
    return (width + below) / volume * tail


def test_risks_are_filled_in_and_pass_the_check() -> None:
    silent = replace(good(), phases=tuple(replace(phase, risk=0.0) for phase in good().phases))
    filled = with_risks(silent)
    check_dithered(filled)
    assert [phase.risk for phase in filled.phases] == risks(good(), equal_widths(good()))


def test_too_small_slacks_are_refused_when_risks_are_filled_in() -> None:
    small = [replace(p, slack_early=0.99 * p.slack_early, slack_late=0.99 * p.slack_late) for p in good().phases]
    with pytest.raises(PlanError, match="sum of the risks"):
        with_risks(rebuilt(good(), small))


def test_phase_without_dither_is_refused_when_risks_are_filled_in() -> None:
    with pytest.raises(PlanError, match="dither > 0"):
        with_risks(rebuilt(good(), [*good().phases[:-1], replace(good().phases[-1], dither=0.0)]))
