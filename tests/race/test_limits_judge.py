"""Over L, the first refusal and wrong refusals, against values computed by hand."""

from race.limits.judge import Judge
from race.limits.workloads import Request


def take(number: int, units: int = 1) -> Request:
    return Request(0.0, number, 0, units, units)


def hold(number: int, units: int, used: int) -> Request:
    return Request(0.0, number, 0, units, used, until=1.0)


def test_units_beyond_the_limit_are_counted() -> None:
    judge = Judge(10)
    for number in range(4):
        judge.allow(take(number, 3))
    assert (judge.over, judge.first_refusal, judge.wrong_refusals) == (2, None, 0)


def test_refusal_is_wrong_if_the_request_would_have_fitted() -> None:
    judge = Judge(10)
    judge.allow(take(0, 7))
    assert judge.refuse(take(1, 4)) is None
    assert judge.refuse(take(2, 3)) is not None
    assert (judge.first_refusal, judge.wrong_refusals) == (7, 1)


def test_units_that_are_left_make_no_more_refusals_wrong_than_fit() -> None:
    judge = Judge(10)
    judge.allow(take(0, 8))
    for number in range(1, 100):
        judge.refuse(take(number))
    assert judge.wrong_refusals == 2


def test_held_units_are_not_left_and_not_spent() -> None:
    judge = Judge(10)
    first = hold(0, 8, used=3)
    units = judge.allow(first)
    judge.refuse(take(1, 3))
    assert (judge.over, judge.first_refusal, judge.wrong_refusals) == (0, 8, 0)
    judge.settle(first, units)
    judge.refuse(take(2, 7))
    assert judge.wrong_refusals == 1
    assert (judge.admitted.spent, judge.admitted.held) == (3, 0)


def test_hold_that_was_refused_wrongly_counts_until_it_would_have_ended() -> None:
    judge = Judge(10)
    refused = hold(0, 10, used=1)
    units = judge.refuse(refused)
    assert units is not None
    assert judge.refuse(take(1)) is None
    judge.settle(refused, units)
    assert judge.refuse(take(2, 9)) is not None
    assert judge.wrong_refusals == 2
    assert judge.admitted.used == 0
