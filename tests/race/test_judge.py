"""The judge's arithmetic, by hand."""

import pytest

from race.judge import Judge


def test_error_and_age_of_an_answer_that_lags_behind() -> None:
    judge = Judge(counters=1, halfway=100.0)
    for second in range(4):
        judge.happen(float(second), 0)
    judge.hear(0, 4.0)
    judge.look(3.0, 0)
    assert judge.worst_error == 0
    judge.happen(10.0, 0)
    judge.look(10.0, 0)
    judge.wait(25.0, 0)
    assert judge.worst_error == pytest.approx(1 / 5)
    assert judge.worst_age == 15.0  # the fifth event happened at 10, and at 25 the answer is still four


def test_an_answer_that_is_too_high_is_wrong_but_not_old() -> None:
    judge = Judge(counters=1, halfway=0.0)
    judge.happen(1.0, 0)
    judge.hear(0, 1.5)
    judge.look(1.0, 0)
    judge.wait(99.0, 0)
    assert (judge.worst_error, judge.late_error, judge.worst_age) == (0.5, 0.5, 0.0)


def test_only_the_second_half_counts_as_late() -> None:
    judge = Judge(counters=2, halfway=10.0)
    judge.happen(1.0, 1)
    judge.look(1.0, 1)
    judge.hear(1, 1.0)
    judge.look(11.0, 1)
    assert (judge.worst_error, judge.late_error) == (1.0, 0.0)
