"""Errors and ages of the judge, against values computed by hand."""

import pytest

from race.judge import Judge


def test_error_and_age_of_an_answer_that_is_too_low() -> None:
    judge = Judge(counters=1, halfway=100.0)
    for second in range(4):
        judge.add_event(float(second), 0)
    judge.set_answer(0, 4.0)
    judge.compare(3.0, 0)
    assert judge.worst_error == 0
    judge.add_event(10.0, 0)
    judge.compare(10.0, 0)
    judge.age_until(25.0, 0)
    assert judge.worst_error == pytest.approx(1 / 5)
    assert judge.worst_age == 15.0  # the fifth event happened at 10, and at 25 the answer is still four


def test_answer_that_is_too_high_has_an_error_and_no_age() -> None:
    judge = Judge(counters=1, halfway=0.0)
    judge.add_event(1.0, 0)
    judge.set_answer(0, 1.5)
    judge.compare(1.0, 0)
    judge.age_until(99.0, 0)
    assert (judge.worst_error, judge.late_error, judge.worst_age) == (0.5, 0.5, 0.0)


def test_late_error_is_of_the_second_half() -> None:
    judge = Judge(counters=2, halfway=10.0)
    judge.add_event(1.0, 1)
    judge.compare(1.0, 1)
    judge.set_answer(1, 1.0)
    judge.compare(11.0, 1)
    assert (judge.worst_error, judge.late_error) == (1.0, 0.0)
