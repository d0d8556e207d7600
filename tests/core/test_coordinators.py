"""What all coordinators do alike: each is a `Machine` that two sites were members of when it was saved."""

from typing import Any, NamedTuple

import pytest

from countless.core.budget import state as budget
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.coordinator import Coordinator, PersistentCounter
from countless.core.family import messages as family
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.messages import DownMessage as FamilyDown
from countless.core.family.messages import LabelReport, Steps
from countless.core.family.messages import UpMessage as FamilyUp
from countless.core.family.rule import CertainSteps
from countless.core.machine import Machine
from countless.core.messages import DownMessage, Report, SiteId, Snapshot, UpMessage
from countless.errors import ProtocolError
from countless.randomness import SeededRandom
from countless.schemes.deterministic import Deterministic

A, B = SiteId("a"), SiteId("b")
ROUND = 3


class Case(NamedTuple):
    machine: Machine[Any, Any]
    answered: Any  # what A says that is what is known, in the present round
    of_later_round: Any

    @property
    def saved(self) -> object:
        return self.machine.saved_state  # type: ignore[attr-defined]  # each has its own


def counter() -> Case:
    machine: Machine[UpMessage, DownMessage] = Coordinator(
        "hits",
        Deterministic(),
        SeededRandom(1),
        alpha=0.1,
        delta=0.1,
        saved_state=PersistentCounter(ROUND, 100, 0, ((A, 60), (B, 40))),
    )
    return Case(machine, Snapshot("hits", ROUND + 1, 60), Report("hits", 99, 61, 1))


def labels() -> Case:
    steps = Steps(2, 3)
    members = {each: family.SavedMember(steps, count, {"x": count}) for each, count in ((A, 60), (B, 40))}
    saved = family.PersistentFamily(ROUND, steps, 2, 100, {"x": 100}, members, (), 0)
    machine: Machine[FamilyUp, FamilyDown] = FamilyCoordinator("f", CertainSteps(0.1), saved_state=saved)
    return Case(machine, LabelReport("f", ROUND, (("x", 60),), 60), LabelReport("f", 99, (("x", 61),), 61))


def units() -> Case:
    sites = tuple((each, budget.SavedSite(40, spent=10, since=1)) for each in (A, B))
    saved = budget.PersistentBudget(100, sites=sites)
    machine: Machine[Ask, Quota] = BudgetCoordinator(BudgetId("tokens"), 100, saved_state=saved)
    answered = Ask(BudgetId("tokens"), 1, 1, 1, 40, 30, 10, 0)
    return Case(machine, answered, answered._replace(since=99))


@pytest.fixture(params=[counter, labels, units])
def case(request: pytest.FixtureRequest) -> Case:
    made: Case = request.param()
    made.machine.recover()
    assert None not in (made.machine.awaited(A), made.machine.awaited(B))
    return made


def test_answer_that_has_come_is_not_awaited(case: Case) -> None:
    case.machine.receive(A, case.answered)
    assert case.machine.awaited(A) is None
    assert case.machine.awaited(B) is not None


def test_unreachable_site_is_not_awaited(case: Case) -> None:
    case.machine.mark_unreachable(A)
    assert case.machine.awaited(A) is None
    assert case.machine.awaited(B) is not None


def test_messages_of_a_site_that_was_given_up_change_nothing(case: Case) -> None:
    case.machine.give_up(A)
    assert case.machine.awaited(A) is None
    before = case.saved
    assert case.machine.receive(A, case.answered) == []
    assert case.machine.give_up(A) == []
    assert case.saved == before


def test_message_that_is_rejected_changes_nothing(case: Case) -> None:
    before = case.saved, case.machine.awaited(A)
    with pytest.raises(ProtocolError):
        case.machine.receive(A, case.of_later_round)
    assert (case.saved, case.machine.awaited(A)) == before
