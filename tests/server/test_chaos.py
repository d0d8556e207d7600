"""Every fault at once, with real processes. `make chaos` runs it for longer."""

import pytest

from support import chaos
from support.chaos_broker import BrokerChaos

pytestmark = pytest.mark.soak


def test_nothing_is_lost_or_counted_twice_under_all_faults_together() -> None:
    assert chaos.run(seed=1, seconds=60) == []


def test_nothing_is_lost_or_counted_twice_behind_a_broker() -> None:
    assert chaos.run(seed=2, seconds=60, kind=BrokerChaos) == []


def test_without_state_dir_killed_programs_lose_counts_and_the_comparison_sees_it() -> None:
    assert chaos.run(seed=3, seconds=10, durable=False)  # kills a program at once
