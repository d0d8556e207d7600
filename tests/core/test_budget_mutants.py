"""Mistakes in the protocol of budgets: a pinned run finds each. `make soak` hunts for each in random runs."""

from collections.abc import Callable

import pytest

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from support import budget_mutants as mutants
from support.budget_world import BUDGET, Broken, Case, World, walk

CASES = {
    "holds": Case(sites=4, limit=40, requests=80, weights=(1, 5), holds=40, losses=5, repeats=5, overtakes=5),
    "messages": Case(sites=4, limit=60, requests=80, weights=(1, 2, 9), losses=9, repeats=9, overtakes=9, reconnects=5),
    "restarts": Case(sites=3, limit=40, requests=60, weights=(1, 4), holds=20, kills=5, losses=5, timeouts=5),
    "members": Case(
        sites=6, limit=60, requests=80, weights=(1, 3), holds=30, leaves=3, ends=2, kills=2, repeats=9, overtakes=9
    ),
    "resets": Case(sites=4, limit=40, requests=99, weights=(1, 4, 9), holds=40, resets=4, queue=2),
    "deleted": Case(
        sites=4, limit=40, requests=80, weights=(1, 4), holds=30, deletions=2, kills=2, reconnects=2, queue=2
    ),
    "queued": Case(sites=4, limit=6, requests=80, weights=(1, 2, 5), holds=20, acquires=60, withdrawals=9),
    "early": Case(sites=3, limit=60, requests=99, weights=(1, 3, 15), early_percent=50, overtakes=40, queue=2),
    "sends first": Case(sites=2, limit=8, requests=20, weights=(1, 2), kills=3, sends_before_saving=True),
}
MUTANTS: dict[type[BudgetCoordinator | BudgetSite], tuple[str, int]] = {
    mutants.FreesRoomsThatItRecalls: ("holds", 0),
    mutants.FreesRoomsOfSilentSites: ("restarts", 4),
    mutants.BelievesAsksThatHaveNotSeenTheNewestQuota: ("resets", 0),
    mutants.BelievesOlderAsks: ("early", 45),
    mutants.BelievesOlderQuotas: ("messages", 4),
    mutants.NeverReopens: ("resets", 0),
    mutants.GrantsQueuedRequestsWhatIsPossible: ("queued", 5),
    mutants.RefusesEveryWeight: ("holds", 0),
    mutants.SettlesInSilence: ("holds", 0),
    mutants.LendsWhatItHasRecalled: ("holds", 0),
    mutants.ForgetsWhoLeft: ("members", 63),
    mutants.BelievesMembersOfAnOlderBudget: ("deleted", 1),
    mutants.ForgivesLimits: ("resets", 4),
    mutants.ResetsAskOnlyWhoIsLent: ("resets", 0),
    BudgetCoordinator: ("sends first", 9),  # a kill finds the state before the last step
}
SEEDS = 1000


def finds(mutant: type[BudgetCoordinator | BudgetSite], name: str, seed: int) -> bool:
    case = CASES[name]
    if issubclass(mutant, BudgetCoordinator):
        world = World(case, mutant)
    else:
        world = World(case, BudgetCoordinator, mutant)
    try:
        walk(world, seed)
    except Broken:
        return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS)
def test_random_run_finds_the_mutant(mutant: type[BudgetCoordinator | BudgetSite]) -> None:
    assert finds(mutant, *MUTANTS[mutant])


@pytest.mark.parametrize("name", sorted({name for name, _ in MUTANTS.values()} - {"sends first"}))
def test_the_same_runs_find_nothing_in_production_classes(name: str) -> None:
    for mutant, (case, seed) in MUTANTS.items():
        if case == name:
            assert not finds(BudgetSite, name, seed), mutant


@pytest.mark.soak
@pytest.mark.parametrize("mutant", MUTANTS)
def test_random_runs_find_the_mutant(mutant: type[BudgetCoordinator | BudgetSite]) -> None:
    name, _ = MUTANTS[mutant]
    assert any(finds(mutant, name, seed) for seed in range(SEEDS, 2 * SEEDS))


# Random runs do not find these, or take too long

U, V, W, X, Y, Z = map(SiteId, "uvwxyz")


def ask(seq: int, number: int = 0, granted: int = 0, used: int = 0, held: int = 0, want: int = 0, more: int = 0) -> Ask:
    """Of a site that is not lent anything, so it has returned the rest."""
    return Ask(BUDGET, seq, min(number, 1), number, granted, granted - used - held, used, held, want, more)


def request_keeps_its_turn(made: type[BudgetCoordinator]) -> None:
    """A second recall starts when two requests are in line: U was silent during the first."""
    coordinator = made(BUDGET, 100, slack=0)
    coordinator.receive(X, ask(1, want=1))  # lent 28
    coordinator.receive(U, ask(1, want=1))  # lent 14
    coordinator.receive(Y, ask(1, want=58))
    coordinator.mark_unreachable(U)
    assert dict(coordinator.receive(V, ask(1, want=27)))[X].reply
    coordinator.receive(U, ask(2, 1, 14)._replace(returned=0, keep=True))
    coordinator.receive(Z, ask(1, want=1))
    coordinator.receive(W, ask(1, want=9))
    assert dict(coordinator.receive(X, ask(2, 2, 28, used=1)))[U].reply
    answers = coordinator.receive(U, ask(3, 2, 14, used=5))
    assert [(site_id, quota.granted) for site_id, quota in answers] == [(Z, 1), (W, 0)]


def site_in_line_is_told_no_older_refusal(made: type[BudgetCoordinator]) -> None:
    """It has returned units since, so it asks again for what it was refused; its turn has not come."""
    coordinator = made(BUDGET, 10, slack=0)
    coordinator.receive(Z, ask(1, want=1))
    coordinator.receive(X, ask(1, want=4))
    coordinator.receive(Y, ask(1, want=3))
    ((_, refusal),) = coordinator.receive(X, ask(2, 1, 4, held=4, want=5))
    assert refusal.refuse_from is not None
    coordinator.receive(Y, ask(2, 1, 3, used=3, want=1))  # Z is recalled
    coordinator.receive(X, ask(3, 2, 4, held=1, want=5))
    told = dict(coordinator.reset())
    assert told[X].refuse_from is None


def older_file_is_charged_what_was_reported(made: type[BudgetCoordinator]) -> None:
    coordinator = made(BUDGET, 10)
    coordinator.receive(X, ask(1, want=4))
    coordinator.receive(X, ask(2, 1, 4, used=4))
    coordinator.leave(X, 1)
    assert coordinator.gone == 4


SCENARIOS: dict[type[BudgetCoordinator], Callable[[type[BudgetCoordinator]], None]] = {
    mutants.LosesTheTurn: request_keeps_its_turn,
    mutants.RepeatsRefusalsToSitesInLine: site_in_line_is_told_no_older_refusal,
    mutants.ChargesNoMoreThanIsHandedIn: older_file_is_charged_what_was_reported,
}


@pytest.mark.parametrize("mutant", SCENARIOS)
def test_scenario_finds_the_mutant(mutant: type[BudgetCoordinator]) -> None:
    SCENARIOS[mutant](BudgetCoordinator)
    with pytest.raises(AssertionError):
        SCENARIOS[mutant](mutant)
