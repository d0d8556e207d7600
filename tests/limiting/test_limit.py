"""A limit without a framework: names with fields, waiting for room, and what cannot be a limit."""

from typing import Any
from uuid import UUID

import pytest

from countless.core.budget.decision import Decision, Reason
from countless.core.budget.rule import BudgetRule
from countless.errors import InvalidParameter
from countless.limiting.limit import Attempts, Limit
from support.deciding import Budget, Client, always

EXHAUSTED = Decision(Reason.EXHAUSTED)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def pauses(rule: BudgetRule, timeout: float, retry_after: float | None, decision: Decision = EXHAUSTED) -> list[float]:
    """How long a request pauses that is refused each time."""
    budget: Any = Budget("all", always(Reason.EXHAUSTED), rule)
    budget.retry_after = lambda n: retry_after
    clock = Clock()
    attempts, found = Attempts(1.0, timeout, clock), []
    while pause := attempts.pause(budget, decision, 1):
        found.append(pause)
        clock.now += pause
    return found


def test_waiting_request_tries_again_when_there_may_be_room_and_never_after_its_time() -> None:
    minute, rolling = BudgetRule(10, per="minute"), BudgetRule(10, rolling=60.0)
    assert pauses(minute, 50, 20.0) == [20.0, 20.0]
    assert pauses(minute, 10, 20.0) == []
    assert pauses(rolling, 20, None) == [6.0, 6.0, 6.0]  # what comes back was admitted by other processes
    assert pauses(minute, 0, 20.0) == []
    assert pauses(BudgetRule(10), 50, None) == []
    assert pauses(minute, 50, 20.0, Decision(Reason.UNREACHABLE)) == []


def test_request_waits_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    decisions = iter([Reason.EXHAUSTED, Reason.ALLOWED])
    client = Client(lambda name: next(decisions), BudgetRule(10, rolling=60.0))
    slept: list[float] = []
    monkeypatch.setattr("countless.limiting.limit.sleep", slept.append)
    limit = Limit(client, "all", wait="period", timeout=10)
    assert limit.take({}, 1)
    assert slept == [3.2]


async def test_async_request_waits_until_there_is_room() -> None:
    decisions = iter([Reason.EXHAUSTED, Reason.EXHAUSTED, Reason.ALLOWED])
    client = Client(lambda name: next(decisions), BudgetRule(10, rolling=60.0))
    client.budget("all").retry_after = lambda n: 0.0
    assert await Limit(client, "all", wait="period").atake({}, 1)
    assert client.made["all"].taken == [1, 1, 1]


def test_shadow_mode_does_not_wait_for_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("countless.limiting.limit.sleep")
    limit = Limit(Client(always(Reason.EXHAUSTED)), "all", wait="period", timeout=100, shadow=True)
    assert limit.take({}, 1) is None


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("me", "keys/me"),
        (0, "keys/0"),
        (UUID(int=5), "keys/00000000-0000-0000-0000-000000000005"),
        ("vip/me", "keys/vip%2Fme"),  # otherwise a caller could choose the rule keys/vip/*
        ("*", "keys/%2A"),
        ("50%", "keys/50%25"),
    ],
)
def test_field_is_one_part_of_the_name_whatever_it_contains(value: object, name: str) -> None:
    client = Client(always(Reason.ALLOWED))
    assert Limit(client, "keys/{key}").take({"key": value}, 1)
    assert list(client.made) == [name]


@pytest.mark.parametrize("value", ["", None, object(), lambda: "me", "\n", "x" * 5000])
def test_field_that_names_no_budget_is_refused_even_without_a_coordinator(
    value: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The text of an object differs from call to call: each would have a budget of its own."""
    client = Client(always(Reason.ALLOWED))
    with pytest.raises(InvalidParameter):
        Limit(client, "keys/{key}", on_unreachable="allow").take({"key": value}, 1)
    assert client.made == {}
    assert "budget=keys/{key} reason=invalid" in caplog.text
    assert len(caplog.records[0].message) < 500


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"budget": "keys-{key}"}, "budget"),
        ({"budget": "{key}"}, "budget"),
        ({"budget": "keys/{}"}, "budget"),
        ({"budget": "keys/{key!r}"}, "budget"),
        ({"budget": "keys/{key"}, "budget"),
        ({"budget": 5}, "budget"),
        ({"wait": "month"}, "wait"),
        ({"wait": -1}, "wait"),
        ({"timeout": -1}, "timeout"),
        ({"counter": "a{b"}, "counter"),
    ],
)
def test_wrong_option_is_named(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParameter) as error:
        Limit(Client(always(Reason.ALLOWED)), **({"budget": "all"} | arguments))
    assert error.value.parameter == field


def test_rule_of_a_name_with_fields_ends_before_the_first(caplog: pytest.LogCaptureFixture) -> None:
    from countless.errors import UnknownBudget

    def unknown(name: str) -> Reason:
        raise UnknownBudget(name, "there is none")

    limit = Limit(Client(unknown), "orgs/{org}/exports", on_unreachable="allow")
    assert limit.take({"org": "acme"}, 1) is None
    assert "create the rule: countless budget create 'orgs/*' --limit N --per minute" in caplog.text


def test_limit_that_has_limited_a_request_may_let_others_pass(caplog: pytest.LogCaptureFixture) -> None:
    limit = Limit(Client(always(Reason.ALLOWED)), "keys/{key}")
    assert limit.take({"key": "me"}, 1)
    for _ in range(200):
        assert limit.take({"key": None}, 0) is None
    assert caplog.messages == []
