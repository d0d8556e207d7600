"""Games in parallel processes: the same scores from the same seeds."""

import pytest

from countless.errors import InvalidParameter, MissingExtra
from countless_lab.arena.match import Setting, run
from countless_lab.arena.parallel import in_parallel
from countless_lab.arena.registry import adversary_named

SETTINGS = [
    Setting("lattice", adversary_named("stop-after-jump"), 64, 0.1, 0.1, 5000),
    Setting("hyz", adversary_named("uniform"), 8, 0.1, 0.1, 5000),
]


def test_local_processes_give_the_same_scores() -> None:
    assert run(SETTINGS, 3, seed=4, jobs=2) == run(SETTINGS, 3, seed=4)


def test_without_joblib_games_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless_lab.arena.parallel.find_spec", lambda name: None)
    assert in_parallel(pow, [(2, 3), (3, 2)]) == [8, 9]
    with pytest.raises(MissingExtra, match="joblib"):
        in_parallel(pow, [(2, 3), (3, 2)], jobs=2)


def test_invalid_requests_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="jobs"):
        run(SETTINGS, 2, jobs=0)
