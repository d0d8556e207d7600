"""The coordinator and the site of a budget, one behaviour at a time; a searched model covers their runs."""

import pytest

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask, BudgetId, Exhausted, Grant, Recall
from countless.core.budget.site import BudgetSite, Verdict
from countless.core.budget.state import BudgetState, PersistentState, SavedSite
from countless.core.messages import SiteId
from countless.errors import InvalidParameter, ProtocolError

B = BudgetId("tokens", 7)
X, Y, Z = SiteId("x"), SiteId("y"), SiteId("z")


def ask(seq: int, want: int = 0, *, limit: int = 0, spent: int = 0, held: int = 0, number: int = 0) -> Ask:
    return Ask(B, number, seq, spent, held, limit, want)


def test_first_shares_are_made_for_the_expected_holders() -> None:
    assert BudgetCoordinator(B, 1000).receive(X, ask(1, 1)) == [(X, Grant(B, 0, 280))]
    assert BudgetCoordinator(B, 1000, expected_holders=10).receive(X, ask(1, 1)) == [(X, Grant(B, 0, 28))]


def test_share_is_made_anew_when_the_holders_have_doubled() -> None:
    coordinator = BudgetCoordinator(B, 1000)
    coordinator.receive(X, ask(1, 1))
    assert coordinator.receive(Y, ask(1, 1)) == [(Y, Grant(B, 0, 140))]
    assert coordinator.receive(Z, ask(1, 1)) == [(Z, Grant(B, 0, 140))]


def test_large_request_is_granted_at_once() -> None:
    assert BudgetCoordinator(B, 1000).receive(X, ask(1, 900)) == [(X, Grant(B, 0, 900))]


def test_lost_grant_is_sent_again_and_nothing_more() -> None:
    coordinator = BudgetCoordinator(B, 1000)
    coordinator.receive(X, ask(1, 1))
    assert coordinator.receive(X, ask(2, 1)) == [(X, Grant(B, 0, 280))]
    assert coordinator.receive(X, ask(2, 1, limit=280, spent=280)) == []  # repeated


def test_recall_goes_to_sites_that_may_return_something() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 6))
    coordinator.receive(X, ask(2, 1, limit=6, spent=6))  # limit 9: three units of room
    coordinator.receive(Y, ask(1, 1))
    assert coordinator.receive(Y, ask(2, 1, limit=1, spent=1)) == [(X, Recall(B, 1))]
    assert coordinator.recalling
    assert coordinator.receive(X, ask(3, 0, limit=7, spent=7, number=1)) == [(Y, Grant(B, 1, 2))]


def test_site_that_timed_out_counts_with_its_limit_until_it_answers() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 8))
    coordinator.receive(Y, ask(1, 2))
    assert coordinator.receive(Y, ask(2, 1, limit=2, spent=2)) == [(X, Recall(B, 1))]
    assert coordinator.mark_unreachable(X) == [(Y, Exhausted(B, 1, 1))]
    assert coordinator.receive(X, ask(2, 0, limit=8, spent=3)) == [(X, Recall(B, 1))]
    # Five units are back: the site that was refused is recalled, so that it may ask again.
    assert coordinator.receive(X, ask(3, 0, limit=3, spent=3, number=1)) == [(Y, Recall(B, 2))]


def test_units_of_a_site_that_was_given_up_return_when_it_leaves() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 8))
    coordinator.give_up(X)
    assert coordinator.usage == (10, 0, 8, 8, BudgetState.OPEN)
    assert coordinator.receive(X, ask(2, 1, limit=8, spent=8)) == []
    assert coordinator.receive(Y, ask(1, 3)) == [(Y, Exhausted(B, 0, 3))]
    assert coordinator.leave(X, 2) == [(Y, Recall(B, 1))]
    assert coordinator.leave(X, 2) == []
    assert coordinator.usage.lower == coordinator.usage.upper == 2


def test_saved_state_continues_with_the_same_limits() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 8))
    coordinator.receive(Y, ask(1, 1))
    coordinator.leave(Y, 1)
    coordinator.give_up(Z)
    coordinator.set_limit(12)
    after = BudgetCoordinator(B, 1, slack=0, saved_state=coordinator.saved_state)
    assert after.saved_state == coordinator.saved_state
    assert (after.limit, after.free, after.saved_site(X)) == (12, 3, SavedSite(8))
    assert after.recover() == [(X, Recall(B, 1))]
    assert after.receive(Y, ask(5, 1)) == []  # it left before the restart
    assert after.receive(X, ask(2, 1, limit=8, spent=8)) == [(X, Recall(B, 1))]
    assert after.receive(X, ask(3, 1, limit=8, spent=8, number=1)) == [(X, Grant(B, 1, 9))]


def test_lowered_limit_is_in_force_once_rooms_are_back() -> None:
    coordinator = BudgetCoordinator(B, 100, slack=0)
    coordinator.receive(X, ask(1, 50))
    assert coordinator.set_limit(20) == [(X, Recall(B, 1))]
    assert coordinator.usage.state is BudgetState.LOWERING
    coordinator.receive(X, ask(2, 0, limit=15, spent=15, number=1))
    assert coordinator.usage == (20, 15, 15, 0, BudgetState.OPEN)


def test_request_larger_than_what_is_left_does_not_exhaust_the_budget() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0.1)
    assert coordinator.receive(X, ask(1, 11)) == [(X, Exhausted(B, 0, 11))]
    assert (coordinator.usage.state, coordinator.refused_from) == (BudgetState.OPEN, 11)
    coordinator.receive(Y, ask(1, 9))
    coordinator.receive(X, ask(2, 2))
    coordinator.receive(Y, ask(2, 0, limit=9, spent=9, number=1))
    assert coordinator.receive(X, ask(3, 2, number=1)) == [(X, Exhausted(B, 1, 2))]
    assert (coordinator.usage.state, coordinator.refused_from) == (BudgetState.EXHAUSTED, 2)


def test_reset_forgives_what_sites_report_and_tells_refused_sites() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 10))
    coordinator.receive(X, ask(2, 1, limit=10, spent=10))
    assert coordinator.usage.state is BudgetState.EXHAUSTED
    assert coordinator.reset() == [(X, Recall(B, 1))]
    assert coordinator.usage == (10, 10, 10, 0, BudgetState.RESETTING)
    assert coordinator.receive(X, ask(3, 10, number=1, limit=10, spent=10)) == [(X, Grant(B, 1, 20))]
    assert coordinator.usage == (10, 0, 10, 0, BudgetState.OPEN)


def test_reset_waits_for_sites_with_room_and_goes_on_after_a_restart() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 8))
    coordinator.reset()
    assert coordinator.receive(Y, ask(1, 1)) == []
    after = BudgetCoordinator(B, 1, slack=0, saved_state=coordinator.saved_state)
    assert after.recover() == [(X, Recall(B, 2)), (Y, Recall(B, 2))]
    after.receive(X, ask(2, 0, number=2, limit=6, spent=6))
    assert after.usage.state is BudgetState.RESETTING
    assert after.mark_unreachable(Y) == []
    assert after.usage == (10, 0, 0, 0, BudgetState.OPEN)


def test_forgotten_site_stays_charged_with_its_limit_if_it_was_given_up() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 4))
    coordinator.receive(X, ask(2, 0, limit=4, spent=1))
    coordinator.receive(Y, ask(1, 2))
    coordinator.give_up(X)
    coordinator.give_up(Y)
    assert coordinator.given_up_beyond(1) == [X]
    coordinator.forget(X)
    assert coordinator.given_up_beyond(1) == []
    assert coordinator.usage == (10, 1, 6, 5, BudgetState.OPEN)
    coordinator.leave(Y, 1)
    coordinator.forget(Y)
    assert coordinator.usage == (10, 2, 5, 3, BudgetState.OPEN)
    assert coordinator.saved_state == PersistentState(10, gone=2, lost=3)
    assert BudgetCoordinator(B, 1, saved_state=coordinator.saved_state).usage == coordinator.usage


def test_limit_that_the_disk_has_forgotten_counts() -> None:
    coordinator = BudgetCoordinator(B, 10)
    coordinator.receive(X, ask(4, 0, limit=9, spent=2))
    assert (coordinator.free, coordinator.saved_site(X)) == (1, SavedSite(9, spent=2))


def test_reconnected_site_is_sent_its_refusal_again() -> None:
    coordinator = BudgetCoordinator(B, 2, slack=0)
    coordinator.receive(X, ask(1, 2))
    assert coordinator.receive(X, ask(2, 1, limit=2, held=2)) == [(X, Exhausted(B, 0, 1))]
    assert coordinator.join(X, ask(3, 0, limit=2, held=2)) == [(X, Exhausted(B, 0, 1))]
    assert coordinator.join(X, ask(4, 1, limit=2, held=2)) == [(X, Exhausted(B, 0, 1))]


@pytest.mark.parametrize(
    "message",
    [
        ask(2, 1, number=1),
        ask(2, 1, limit=3, spent=2, held=2),
        ask(2, 1, limit=3, spent=-1),
        ask(2, -1),
        ask(2, 1)._replace(budget=BudgetId("tokens", 8)),
    ],
)
def test_impossible_ask_changes_nothing(message: Ask) -> None:
    coordinator = BudgetCoordinator(B, 10)
    coordinator.receive(X, ask(1, 3))
    before = coordinator.saved_state, coordinator.usage
    with pytest.raises(ProtocolError):
        coordinator.receive(X, message)
    assert (coordinator.saved_state, coordinator.usage) == before


def test_values_outside_their_range_change_nothing() -> None:
    coordinator = BudgetCoordinator(B, 10)
    before = coordinator.saved_state
    with pytest.raises(InvalidParameter, match="limit = 0 is not allowed: limit must be an integer from 1 to"):
        coordinator.set_limit(0)
    with pytest.raises(InvalidParameter, match="spent = -1"):
        coordinator.leave(X, -1)
    assert coordinator.saved_state == before
    with pytest.raises(InvalidParameter, match="expected_holders = 0"):
        BudgetCoordinator(B, 10, expected_holders=0)
    with pytest.raises(InvalidParameter, match="early_percent = 60"):
        BudgetSite(B, early_percent=60)


def test_site_asks_early_once_and_only_while_it_has_room() -> None:
    site = BudgetSite(B)
    site.take(1)
    site.receive(Grant(B, 0, 100))
    assert site.take(90) == (Verdict.ALLOWED, ())
    assert site.take(1) == (Verdict.ALLOWED, (ask(2, 1, limit=100, spent=91),))
    assert site.take(1) == (Verdict.ALLOWED, ())
    site.receive(Grant(B, 0, 200))
    assert site.take(108).messages == ()
    assert BudgetSite(B, early_percent=0).early_percent == 0


def test_early_ask_is_granted_from_what_is_free_and_never_starts_a_round() -> None:
    coordinator = BudgetCoordinator(B, 100)
    coordinator.receive(X, ask(1, 80))
    assert coordinator.receive(X, ask(2, 1, limit=80, spent=75)) == [(X, Grant(B, 0, 100))]
    assert coordinator.receive(X, ask(3, 1, limit=100, spent=95)) == []


def test_site_ignores_earlier_rounds_and_other_budgets() -> None:
    site = BudgetSite(B)
    site.receive(Grant(B, 2, 10))
    assert site.receive(Grant(B, 1, 20)) == site.receive(Recall(B, 1)) == site.receive(Exhausted(B, 1, 1)) == ()
    assert (site.limit, site.round, site.exhausted_from) == (10, 2, None)
    with pytest.raises(ProtocolError):
        site.receive(Grant(BudgetId("tokens", 8), 2, 20))


def test_closed_site_admits_nothing() -> None:
    site = BudgetSite(B)
    site.receive(Grant(B, 0, 10))
    site.take(3)
    site.reserve(4)
    assert site.close() == 7
    assert site.settle(4, 0) == site.receive(Grant(B, 0, 20)) == ()
    assert site.take(1) == (Verdict.EXHAUSTED, ())


def test_withdrawn_request_is_asked_for_again() -> None:
    site = BudgetSite(B)
    assert len(site.take(5).messages) == 1
    assert site.take(5).messages == ()
    site.withdraw()
    assert site.resend().want == 0
    assert site.take(5).messages[0].want == 5


def test_share_of_a_period_is_fetched_before_its_first_request() -> None:
    site, coordinator = BudgetSite(B), BudgetCoordinator(B, 1000, expected_holders=4)
    (first,) = site.prefetch()
    assert site.prefetch() == ()
    for _, grant in coordinator.receive(X, first):
        site.receive(grant)
    assert coordinator.holders == 1
    assert site.take(70) == (Verdict.ALLOWED, ())
    assert site.room == 0


def test_budget_of_which_nothing_is_left_is_exhausted_before_a_request_is_refused() -> None:
    coordinator, states = BudgetCoordinator(B, 10, slack=0), []
    for number, (spent, held) in enumerate([(0, 0), (4, 6), (9, 0), (10, 0)], start=1):  # a hold may end unreported
        coordinator.receive(X, Ask(B, 0, number, spent, held, 10 if spent else 0, 0 if spent else 10))
        states.append(coordinator.usage.state)
    assert states == [BudgetState.OPEN] * 3 + [BudgetState.EXHAUSTED]
    assert coordinator.refused_from is None


def test_budget_is_open_while_sites_may_return_what_they_have() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 10))
    coordinator.receive(Y, ask(1, 1))
    assert (coordinator.recalling, coordinator.usage.state) == (True, BudgetState.OPEN)


def test_answer_is_awaited_from_a_site_that_is_recalled_until_it_answers_or_is_unreachable() -> None:
    coordinator = BudgetCoordinator(B, 10)
    for site_id in (X, Y):
        coordinator.receive(site_id, ask(1, 5))
    coordinator.recover()
    assert [coordinator.awaited(each) for each in (X, Y, Z)] == [1, 1, None]
    coordinator.receive(X, ask(2, limit=5))  # before it has received the recall
    assert coordinator.awaited(X) == 1
    coordinator.receive(X, ask(3, number=1))
    coordinator.mark_unreachable(Y)
    assert [coordinator.awaited(each) for each in (X, Y)] == [None, None]
