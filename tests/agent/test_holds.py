"""Holds of programs: they are settled once, may be settled again with the same words, and are forgotten in time."""

from collections.abc import Callable

import pytest

from countless.agent import holds as module
from countless.agent.bodies import Refused
from countless.agent.holds import REPEATED_S, Holds
from countless.core.budget.hold import Hold
from countless.errors import HoldExpired


class Call:
    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        self.seconds = seconds
        self.function = function
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Later:
    """Collects the calls that are due later."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, seconds: float, function: Callable[[str], None], identity: str) -> Call:
        self.calls.append(Call(seconds, lambda: function(identity)))
        return self.calls[-1]


def held(units: int, settled: list[int], expires_in: float | None = 7.5) -> Hold:
    return Hold(units, lambda _, used: settled.append(used), expires_in)


def test_hold_is_settled_once_and_the_same_request_again_has_the_same_answer() -> None:
    settled, later = list[int](), Later()
    holds = Holds(later)
    identity = holds.add("tokens", held(10, settled))
    assert holds.settle("tokens", identity, 4) == 6
    assert holds.settle("tokens", identity, 4) == 6
    with pytest.raises(Refused, match="settled before, with used = 4") as refused:
        holds.settle("tokens", identity, 5)
    assert refused.value.status == 409
    assert settled == [4]
    forget_open, forget_settled = later.calls
    assert (forget_open.seconds, forget_open.cancelled, forget_settled.seconds) == (7.5, True, REPEATED_S)
    forget_settled.function()
    assert len(holds) == 0


def test_hold_that_has_expired_cannot_be_settled() -> None:
    def settle(units: int, used: int) -> None:
        raise HoldExpired("tokens", units)

    later = Later()
    holds = Holds(later)
    identity = holds.add("tokens", Hold(10, settle, 7.5))
    for _ in range(2):
        with pytest.raises(Refused, match="its units count as spent") as refused:
            holds.settle("tokens", identity, 4)
        assert refused.value.status == 404
        for call in later.calls:
            call.function()
        later.calls.clear()


def test_hold_that_never_expires_is_kept_until_it_is_settled() -> None:
    later = Later()
    holds = Holds(later)
    identity = holds.add("exports", held(1, [], expires_in=None))
    assert later.calls == []
    holds.settle("exports", identity, 0)
    later.calls[0].function()
    assert len(holds) == 0


def test_wrong_settlements_are_refused_and_change_nothing() -> None:
    settled = list[int]()
    holds = Holds(Later())
    identity = holds.add("tokens", held(10, settled))
    for budget, hold, used in (("tokens", "another", 1), ("other", identity, 1), ("tokens", identity, 11)):
        with pytest.raises(Refused):
            holds.settle(budget, hold, used)
    assert settled == []
    assert holds.settle("tokens", identity, 10) == 0


def test_holds_are_refused_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HOLDS", 1)
    holds = Holds(Later())
    holds.require_place()
    holds.add("tokens", held(1, []))
    with pytest.raises(Refused, match="takes no more") as refused:
        holds.require_place()
    assert refused.value.status == 503
