"""Families and distributions from `inc` to the coordinator's answer: production classes, and kills at any step."""

from pathlib import Path

import pytest

from countless.server.storage import commit
from support.families_clients import play


@pytest.fixture(autouse=True)
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pauses between saves."""
    monkeypatch.setattr(commit, "COMMIT_INTERVAL_S", 0.0)


@pytest.mark.parametrize("seed", [*range(6), 70])  # in 70 a round begins while another one is confirmed
async def test_random_runs_lose_nothing_and_count_nothing_twice(seed: int, tmp_path: Path) -> None:
    assert await play(seed, tmp_path if seed % 2 else None) is None


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 400, 50))
async def test_many_random_runs(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        assert await play(seed, tmp_path if seed % 2 else None, sites=2 + seed % 4) is None
