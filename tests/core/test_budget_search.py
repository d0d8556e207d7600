"""Every run of small budgets, on a network that loses, repeats and reorders, with kills between any two steps.

`World` (tests/support/budget_world.py) lists what is checked. With a limit below 4 nothing is lent.
"""

import pytest

from support.budget_world import Case, World, search

pytestmark = pytest.mark.slow

CASE = Case(sites=2, limit=4, weights=(1, 3), requests=3)
CASES = {
    "weights": CASE._replace(requests=5),
    "slack": CASE._replace(limit=10, slack=0.2, weights=(2, 5)),
    "holds": CASE._replace(requests=2, holds=2),
    "queue": CASE._replace(queue=2, withdrawals=1),
    "queued": CASE._replace(limit=2, weights=(1, 2), acquires=2),
    "lost": CASE._replace(losses=2),
    "repeated": CASE._replace(repeats=1),
    "overtaken": CASE._replace(requests=2, overtakes=2, reconnects=1),
    "killed": CASE._replace(requests=2, kills=1),
    "left": CASE._replace(leaves=1),
    "ended": CASE._replace(ends=1, overtakes=1),
    "timed out": CASE._replace(timeouts=1),
    "raised": CASE._replace(limits=(5,), losses=1),
    "lowered": CASE._replace(limits=(1, 4)),
    "lowered, timed out": Case(limit=12, requests=2, limits=(2,), timeouts=1),
    "lowered, killed": Case(limit=12, requests=2, limits=(2,), kills=1),
    "reset": CASE._replace(resets=1),
    "deleted": CASE._replace(deletions=1),
    "early": CASE._replace(limit=12, requests=4, early_percent=50),
}
LARGE_CASES = {
    "three sites": CASE._replace(sites=3),
    "holds": CASE._replace(holds=2),
    "queue, holds": CASE._replace(holds=1, queue=2, withdrawals=1),
    "three sites, queued": CASE._replace(sites=3, limit=3, acquires=3),
    "two queued": CASE._replace(acquires=3, queue=2, withdrawals=1),
    "queued, killed": CASE._replace(limit=3, acquires=3, kills=1, timeouts=1),
    "repeated": CASE._replace(repeats=2),
    "overtaken": CASE._replace(overtakes=2, reconnects=1),
    "killed": CASE._replace(kills=1),
    "killed twice": CASE._replace(requests=2, kills=2),
    "killed, lost": CASE._replace(kills=1, losses=1),
    "left, repeated": CASE._replace(leaves=1, repeats=1),
    "left, killed": CASE._replace(requests=2, leaves=1, kills=1),
    "ended, holds": CASE._replace(ends=1, holds=1),
    "timed out, lost": CASE._replace(timeouts=1, losses=1),
    "timed out, holds": CASE._replace(timeouts=1, holds=1),
    "lowered, overtaken": CASE._replace(limits=(1, 4), overtakes=1),
    "reset, lost": CASE._replace(resets=1, losses=1),
    "reset, holds": CASE._replace(resets=1, holds=1),
    "reset, killed": CASE._replace(requests=2, resets=1, kills=1),
    "deleted, killed": CASE._replace(requests=2, deletions=1, kills=1),
}


@pytest.mark.parametrize("name", CASES)
def test_every_run_of_a_small_budget_keeps_every_promise(name: str) -> None:
    found = search(World(CASES[name]))
    assert found.broken is None, f"{found.broken}, after {found.run}"
    assert found.states > 100


@pytest.mark.soak
@pytest.mark.parametrize("name", LARGE_CASES)
def test_every_run_of_a_larger_budget_keeps_every_promise(name: str) -> None:
    found = search(World(LARGE_CASES[name]))
    assert found.broken is None, f"{found.broken}, after {found.run}"
