"""The judge, the calls and the table of the race for calls of models. `make race-llm` plays it with real proxies."""

import pytest

from race.llm.judge import Outcome, over, wrong_refusals
from race.llm.play import Minute, Result
from race.llm.table import COLUMNS, measured
from race.llm.workload import PAUSE_S, calls, number_of

LIMIT = 100


def admitted(sent: float, answered: float, units: int, used: int) -> Outcome:
    return Outcome(sent, answered, units, used)


def refused(sent: float, answered: float, units: int) -> Outcome:
    return Outcome(sent, answered, units, None)


@pytest.mark.parametrize(("used", "above"), [((60, 40), 0), ((60, 41), 1)])
def test_over_is_what_admitted_calls_used_above_the_limit(used: tuple[int, int], above: int) -> None:
    assert over([*(admitted(0, 1, 90, each) for each in used), refused(0, 1, 50)], LIMIT) == above


@pytest.mark.parametrize(
    ("refusal", "wrong"),
    [
        (refused(2.0, 2.1, 40), 1),  # 60 are held
        (refused(2.0, 2.1, 41), 0),
        (refused(4.0, 4.1, 90), 1),  # 10 were used
        (refused(2.9, 3.1, 90), 0),  # it came before the other call was answered
        (refused(0.9, 1.1, 41), 0),  # the other call was decided meanwhile
        (refused(0.1, 0.2, 100), 1),
    ],
)
def test_refusal_is_wrong_if_the_call_would_have_fitted_at_every_moment(refusal: Outcome, wrong: int) -> None:
    assert wrong_refusals([admitted(1.0, 3.0, 60, 10), refusal], LIMIT) == wrong


def test_room_for_one_call_makes_one_refusal_wrong() -> None:
    assert wrong_refusals([refused(at, at + 0.1, 60) for at in range(5)], LIMIT) == 1


def test_calls_are_those_of_their_seed_and_are_known_by_their_prompts() -> None:
    drawn = calls(minutes=2, replicas=3, limit=10_000, seed=1)
    assert drawn == calls(2, 3, 10_000, 1) != calls(2, 3, 10_000, 2)
    assert [number_of(call.prompt) for call in drawn] == [call.number for call in drawn] == list(range(len(drawn)))
    assert {call.minute for call in drawn} == {0, 1}
    assert {call.replica for call in drawn} == {0, 1, 2}
    assert all(PAUSE_S <= call.at <= 60 - PAUSE_S and call.answer <= call.max_tokens for call in drawn)
    assert next(call.at for call in drawn if call.minute == 1) == PAUSE_S


def test_table_has_the_minutes_before_the_kill_and_the_one_with_it() -> None:
    before = [Minute(10, 7, 3, 0, 90, 0, 1, 30), Minute(10, 8, 2, 0, 110, 10, 0, 10)]
    killed = Minute(10, 9, 0, 1, 150, 50, 0, 5)
    table = measured([Result("ours", LIMIT, [*before, killed], [1.0, 2.0, 30.0])])
    assert table.columns == COLUMNS
    assert table.rows == [["ours", "0 to 10", "1 of 5", "100.0%", "50 / 1 of 10", "2.0", "2.0 / 30 ms"]]
