"""Random runs of whole client budgets: never more than the limit, and at rest nothing waits, stays or is refused."""

from random import Random

import pytest

from support.client_budget_world import World


@pytest.mark.parametrize("seed", range(100))
def test_random_run_keeps_the_limit_and_comes_to_rest(seed: int) -> None:
    world = World(Random(seed))  # noqa: S311
    for _ in range(250):
        world.step()
        world.check()
    world.rest()
    world.check_at_rest()
