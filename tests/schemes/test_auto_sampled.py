"""`sampled` under `auto` with a large delta: how often it fails, by simulation."""

import pytest

from countless_lab.simulation.registry import stream_named
from countless_lab.simulation.run import fast_run

RUNS = 36


@pytest.mark.soak
def test_sampled_under_auto_fails_no_more_often_than_delta() -> None:
    """Delta = 0.5: if runs failed so often, more than 29 of 36 would with probability 4e-5. Seeds pinned."""
    failures = 0
    for seed in range(RUNS):
        stream = stream_named("uniform", 300, 10**6, seed=seed)
        outcome = fast_run("auto", stream, 10**6, alpha=0.2, delta=0.5, seed=seed, adversary="sees-everything")
        assert outcome.course[-1].scheme == "sampled"
        failures += not outcome.inside
    assert failures <= 29
