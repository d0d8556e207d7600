"""Families: sites and coordinator by example, and on a faulty network."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.answer import State
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.distribution import BucketSite
from countless.core.family.messages import OVERFLOW, LabelReport, Resend, SetSteps, Steps, Totals
from countless.core.family.rule import CertainSteps
from countless.core.family.site import MAX_COUNTS, FamilySite
from countless.core.messages import SiteId
from countless.errors import InvalidParameter, ProtocolError
from support.family_world import Case, World

A, B = SiteId("a"), SiteId("b")


def coordinator(*fleet: SiteId, epsilon: float = 0.1) -> FamilyCoordinator:
    return FamilyCoordinator("f", CertainSteps(epsilon), fleet=fleet)


def in_round_1(steps: Steps) -> FamilySite:
    site = FamilySite("f")
    site.receive(SetSteps("f", 1, steps))
    return site


# Sites


def test_label_is_reported_when_it_has_grown_by_the_step() -> None:
    site = in_round_1(Steps(3, 100))
    assert site.add("x", 2) == site.add("y", 2) == ()
    assert site.add("x") == (LabelReport("f", 1, (("x", 3),), 5),)
    assert site.add("x", 2) == ()
    assert site.add("x", 20) == (LabelReport("f", 1, (("x", 25),), 27),)


def test_total_is_reported_with_the_label_of_the_event() -> None:
    site = in_round_1(Steps(3, 4))
    assert site.add("x", 2) == site.add("y") == ()
    assert site.add("z") == (LabelReport("f", 1, (("z", 1),), 4),)


def test_lower_step_reports_what_has_grown_by_it_and_confirms() -> None:
    site = in_round_1(Steps(10, 100))
    for label, n in (("x", 9), ("y", 4), ("z", 5)):
        site.add(label, n)
    assert site.receive(SetSteps("f", 2, Steps(5, 50), confirm=True)) == (
        LabelReport("f", 2, (("x", 9), ("z", 5)), 18),
        Totals("f", 2, Steps(5, 50), 18, 14),
    )
    assert site.receive(SetSteps("f", 2, Steps(5, 50), confirm=True)) == (site.sync(),)
    assert site.receive(SetSteps("f", 1, Steps(10, 100))) == ()
    assert site.steps == Steps(5, 50)


def test_resend_reports_every_label_that_was_reported_in_parts() -> None:
    site = FamilySite("f")
    labels = [str(number) for number in range(MAX_COUNTS + 1)]
    for label in labels:
        site.add(label)
    first, second = site.receive(Resend("f"))
    assert isinstance(first, LabelReport)
    assert isinstance(second, LabelReport)
    assert dict(first.counts + second.counts) == dict.fromkeys(labels, 1)
    assert len(first.counts) == MAX_COUNTS


@given(st.lists(st.tuples(st.sampled_from(["1", "2", "3", None]), st.integers(1, 9)), max_size=30))
def test_site_of_a_distribution_holds_back_less_than_its_step_also_after_a_resend(
    inputs: list[tuple[str | None, int]],
) -> None:
    """None is a request to report again."""
    site = BucketSite("f")
    site.receive(SetSteps("f", 1, Steps(10, 10)))
    known: dict[str, int] = {}
    for label, n in inputs:
        for message in site.receive(Resend("f")) if label is None else site.add(label, n):
            if isinstance(message, LabelReport):
                known.update(message.counts)
        assert site.total - sum(known.values()) < 10


def test_labels_beyond_the_cap_are_counted_in_the_overflow() -> None:
    site = FamilySite("f", cap=1)
    assert site.add("x") == (LabelReport("f", 0, (("x", 1),), 1),)
    assert site.add("y", 2) == (LabelReport("f", 0, ((OVERFLOW, 2),), 3),)
    assert site.add("z", 2) == (LabelReport("f", 0, ((OVERFLOW, 4),), 5),)
    assert site.add("x") == (LabelReport("f", 0, (("x", 2),), 6),)
    assert site.labels == 1


@pytest.mark.parametrize("label", ["", None, 3, b"x"])
def test_label_that_is_not_a_string_is_refused(label: object) -> None:
    site = FamilySite("f")
    with pytest.raises(InvalidParameter, match="label"):
        site.add(label)  # type: ignore[arg-type]
    assert site.total == site.labels == 0


@pytest.mark.parametrize("n", [-1, 1.0, True, 2**129])
def test_increment_out_of_range_changes_nothing(n: int) -> None:
    site = FamilySite("f")
    with pytest.raises(InvalidParameter, match="n ="):
        site.add("x", n)
    assert site.total == site.labels == 0


# Steps


@given(st.floats(1e-6, 0.49), st.integers(0, 10**9), st.integers(1, 10**4))
def test_steps_fill_their_shares(epsilon: float, known: int, sites: int) -> None:
    rule = CertainSteps(epsilon)
    for step, share in zip(rule.steps(known, sites)[:2], rule.shares, strict=True):
        assert sites * (step - 1) <= share * known < sites * step


@given(st.floats(1e-6, 0.49), st.integers(0, 10**7), st.integers(1, 1000))
def test_next_round_starts_at_the_first_total_with_much_higher_steps(epsilon: float, known: int, sites: int) -> None:
    rule = CertainSteps(epsilon)
    steps = rule.steps(known, sites)
    at = rule.raise_at(steps, sites)

    def is_worth_a_round(total: int) -> bool:
        pairs = zip(rule.steps(total, sites)[:2], steps[:2], strict=True)
        return any(new > old and 4 * (new - 1) >= 5 * (old - 1) for new, old in pairs)

    assert at > known
    assert is_worth_a_round(at)
    assert not is_worth_a_round(at - 1)


@pytest.mark.parametrize("epsilon", [0, 0.5, -0.1, "0.1", True, float("nan")])
def test_epsilon_out_of_range_is_refused(epsilon: float) -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        CertainSteps(epsilon)


# The coordinator


def test_repeated_and_overtaken_reports_count_once() -> None:
    tracked = coordinator(A, B, epsilon=0.01)
    for count in (5, 9, 5, 9, 7):
        tracked.receive(A, LabelReport("f", 0, (("x", count),), count))
    tracked.receive(B, LabelReport("f", 0, (("x", 2),), 2))
    assert tracked.known == {"x": 11}
    assert tracked.total().estimate == 11
    assert tracked.state is State.EXACT


def test_new_incarnation_is_another_site() -> None:
    tracked = coordinator(A)
    tracked.receive(A, LabelReport("f", 0, (("x", 5),), 5))
    again = SiteId("a", 1)
    tracked.join(again, FamilySite("f").sync())
    tracked.give_up(A)
    tracked.receive(A, LabelReport("f", 0, (("x", 8),), 8))
    tracked.receive(again, LabelReport("f", 0, (("x", 2),), 2))
    assert tracked.known == {"x": 7}
    assert (tracked.sites, tracked.lost) == (1, 1)


def test_sites_that_are_given_up_are_lost() -> None:
    tracked = coordinator(A, B)
    tracked.receive(A, LabelReport("f", 0, (("x", 1000),), 1000))
    assert tracked.steps == Steps(38, 101)
    tracked.give_up(B)
    assert tracked.lost == 1
    assert tracked.answer("x").upper == 1000 + 37


def test_site_that_leaves_stays_until_the_last_lost_event_is_known() -> None:
    tracked, site = coordinator(A), FamilySite("f")
    site.add("x")  # its report is lost
    assert tracked.leave(A, *site.leave()) == [(A, Resend("f"))]  # type: ignore[arg-type]
    assert tracked.site_ids == [A]
    (report,) = site.receive(Resend("f"))
    tracked.receive(A, report)
    assert tracked.leave(A, *site.leave()) == []  # type: ignore[arg-type]
    assert not tracked.site_ids
    assert tracked.known == {"x": 1}


def test_unreachable_site_degrades_the_answer_until_it_returns() -> None:
    tracked = coordinator(A, B)
    tracked.mark_unreachable(B)
    assert (tracked.state, tracked.unreachable) == (State.DEGRADED, ("b",))
    (told,) = tracked.receive(A, LabelReport("f", 0, (("x", 1000),), 1000))
    assert told[0] == A
    assert tracked.receive(B, LabelReport("f", 0, (("x", 1),), 1)) == [(B, SetSteps("f", 1, Steps(38, 101)))]
    assert tracked.state is State.HOLDING


def test_coordinator_restored_from_an_older_copy_numbers_rounds_above_all_others() -> None:
    tracked = coordinator(A, B)
    tracked.receive(A, LabelReport("f", 0, (("x", 100),), 100))
    site = in_round_1(Steps(50, 100))
    site.round = 7
    outbox = tracked.join(B, site.sync())
    assert tracked.round == 8
    assert (B, SetSteps("f", 8, tracked.steps, confirm=True)) in outbox
    assert tracked.state is State.LEARNING
    assert tracked.answer("x").upper >= 100 + 49


@pytest.mark.parametrize(
    "message",
    [
        LabelReport("g", 0, (("x", 1),), 1),
        LabelReport("f", 1, (("x", 1),), 1),
        LabelReport("f", 0, (("x", -1),), 1),
        LabelReport("f", 0, (("x", 1),), -1),
        Totals("f", 0, Steps(), 1, -1),
    ],
)
def test_message_that_violates_the_protocol_changes_nothing(message: LabelReport | Totals) -> None:
    tracked = coordinator(A)
    before = tracked.saved_state
    with pytest.raises(ProtocolError):
        tracked.receive(A, message)
    with pytest.raises(ProtocolError):
        tracked.receive(B, message)
    assert tracked.saved_state == before


def test_labels_beyond_the_cap_of_the_coordinator_are_in_the_overflow() -> None:
    tracked = FamilyCoordinator("f", CertainSteps(0.1), fleet=[A], cap=1)
    for label, count in (("x", 5), ("y", 3), ("y", 4), ("x", 6)):
        tracked.receive(A, LabelReport("f", 0, ((label, count),), 10))
    assert tracked.known == {"x": 6, OVERFLOW: 4}
    assert (tracked.answer("x").lower, tracked.answer("x").upper) == (6, 10)
    assert [each.label for each in tracked.top(0.1).labels] == ["x"]
    assert tracked.top(0.1).overflow.estimate == 4


@pytest.mark.parametrize("share", [0, -1, 1.1, "0.1", True, float("nan")])
def test_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(InvalidParameter, match="share"):
        coordinator().top(share)


# On a faulty network

FAULTY = {
    "messages": Case(sites=3, adds=80, losses=9, repeats=9, overtakes=9),
    "members": Case(sites=2, joins=5, adds=80, leaves=3, ends=2, repeats=9, overtakes=9),
    "restarts": Case(sites=2, joins=3, adds=80, kills=4, timeouts=4, losses=5),
    "capped": Case(sites=2, joins=2, adds=80, cap=2, losses=3, kills=2, leaves=2),
}


def walk(case: Case, seed: int) -> None:
    """One random run, and the checks at its end."""
    rng = Random(seed)  # noqa: S311
    world = World(case._replace(labels=("a", "b", "c", "d"), batches=(1, 2, 8, 30), epsilon=rng.choice([0.1, 0.3])))
    for _ in range(300):
        actions = list(world.actions())
        if not actions:
            break
        deliveries = [action for action in actions if action[0] == "deliver" and action[3] == 0]
        adds = [action for action in actions if action[0] == "add"]
        kinds = [kind for kind in (deliveries, deliveries, adds, actions) if kind]
        world.do(rng.choice(rng.choice(kinds)))
    while deliveries := [action for action in world.actions() if action[0] == "deliver" and action[3] == 0]:
        world.do(rng.choice(deliveries))
    world.check_when_quiet()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTY)
def test_random_runs_on_a_faulty_network_keep_every_promise(name: str) -> None:
    for seed in range(30):
        walk(FAULTY[name], seed)


@pytest.mark.soak
@pytest.mark.parametrize("name", FAULTY)
def test_many_random_runs_on_a_faulty_network_keep_every_promise(name: str) -> None:
    for seed in range(30, 1000):
        walk(FAULTY[name], seed)


def test_sync_is_awaited_since_the_first_round_that_was_not_answered_also_if_the_site_joins_again() -> None:
    tracked = coordinator(A)
    tracked.receive(A, LabelReport("f", 0, (("x", 1_000),), 1_000))
    tracked.join(B, Totals("f", 0, Steps(), 0, 0))
    before = tracked.round
    assert (tracked.awaited(A), tracked.awaited(B)) == (before, None)
    tracked.set_rule(CertainSteps(0.01))
    assert (tracked.round, tracked.awaited(A)) == (before + 1, before)
    tracked.join(A, Totals("f", 1, tracked.debug_state().members[A], 1_000, 1_000))
    assert tracked.awaited(A) == before
    tracked.receive(A, Totals("f", tracked.round, tracked.steps, 1_000, 1_000))
    assert tracked.awaited(A) is None
