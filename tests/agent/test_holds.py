"""Holds of programs: they are settled once, may be settled again with the same words, and expire as spent."""

from collections.abc import Callable

import pytest

from countless.agent import holds as module
from countless.agent.bodies import Refused
from countless.agent.holds import Holds
from countless.core.budget.hold import Hold


class Later:
    """Collects what is to be called later."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, function: Callable[[str], None], identity: str) -> None:
        self.calls.append((seconds, lambda: function(identity)))


def held(units: int, settled: list[int]) -> Hold:
    return Hold(units, lambda _, used: settled.append(used))


def test_hold_is_settled_once_and_the_same_request_again_has_the_same_answer() -> None:
    holds, settled, later = Holds(), list[int](), Later()
    identity = holds.add("tokens", held(10, settled), 60.0, later)
    assert holds.settle("tokens", identity, 4) == 6
    assert holds.settle("tokens", identity, 4) == 6
    with pytest.raises(Refused, match="settled before, with used = 4") as refused:
        holds.settle("tokens", identity, 5)
    assert refused.value.status == 409
    assert settled == [4]
    later.calls[0][1]()
    assert (settled, holds.expired, len(holds)) == ([4], 0, 0)


def test_hold_that_is_not_settled_expires_as_spent() -> None:
    holds, settled, later = Holds(), list[int](), Later()
    identity = holds.add("tokens", held(10, settled), 7.5, later)
    seconds, expire = later.calls[0]
    expire()
    assert (seconds, settled, holds.expired, len(holds)) == (7.5, [10], 1, 0)
    with pytest.raises(Refused, match="its units count as spent") as refused:
        holds.settle("tokens", identity, 4)
    assert refused.value.status == 404


def test_wrong_settlements_are_refused_and_change_nothing() -> None:
    holds, settled = Holds(), list[int]()
    identity = holds.add("tokens", held(10, settled), 60.0, Later())
    for budget, hold, used in (("tokens", "another", 1), ("other", identity, 1), ("tokens", identity, 11)):
        with pytest.raises(Refused):
            holds.settle(budget, hold, used)
    assert settled == []
    assert holds.settle("tokens", identity, 10) == 0


def test_holds_are_refused_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HOLDS", 1)
    holds = Holds()
    holds.require_place()
    holds.add("tokens", held(1, []), 60.0, Later())
    with pytest.raises(Refused, match="takes no more") as refused:
        holds.require_place()
    assert refused.value.status == 503
