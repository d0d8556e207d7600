"""Games in parallel, on this machine and on real dask and ray clusters: the same scores from the same seeds."""

import json
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

from countless.errors import InvalidParameter, MissingExtra, UnknownName
from countless.lab.arena.match import Setting, run
from countless.lab.arena.parallel import BACKENDS, in_parallel
from countless.lab.arena.registry import adversary_named

SETTINGS = [
    Setting("lattice", adversary_named("stop-after-jump"), 64, 0.1, 0.1, 5000),
    Setting("hyz", adversary_named("uniform"), 8, 0.1, 0.1, 5000),
]


ATTACK = ["attack", "--scheme", "lattice,hyz", "--sites", "32", "--alpha", "0.1", "--events", "2e3", "--trials", "2"]


def attack(*arguments: str) -> dict[str, Any]:
    process = subprocess.run(
        [sys.executable, "-m", "countless.cli.main", *ATTACK, "--jobs", "1", "--json", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(process.stdout)
    return found


def test_local_processes_give_the_same_scores() -> None:
    assert run(SETTINGS, 3, seed=4, jobs=2) == run(SETTINGS, 3, seed=4)


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_cluster_started_by_the_command_gives_the_same_scores(backend: str) -> None:
    assert attack("--backend", backend) == attack()


@pytest.mark.slow
def test_running_dask_cluster_is_used_and_left_running() -> None:
    distributed: Any = import_module("distributed")
    workers = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with workers, distributed.Client(workers) as client:
        assert run(SETTINGS, 2, seed=4, jobs=None, backend="dask") == run(SETTINGS, 2, seed=4)
        assert client.status == "running"


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_missing_package_is_named(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless.lab.arena.parallel.find_spec", lambda name: None if name != "joblib" else object())
    with pytest.raises(MissingExtra, match=rf"{BACKENDS[backend]} is not installed; .*countless\[cluster\]"):
        run(SETTINGS, 2, jobs=2, backend=backend)


def test_without_joblib_games_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless.lab.arena.parallel.find_spec", lambda name: None)
    assert in_parallel(pow, [(2, 3), (3, 2)]) == [8, 9]
    with pytest.raises(MissingExtra, match="joblib"):
        in_parallel(pow, [(2, 3), (3, 2)], jobs=2)


@pytest.mark.slow
def test_unreachable_cluster_is_named() -> None:
    config: Any = import_module("dask").config
    unreachable = {"scheduler-address": "tcp://127.0.0.1:1", "distributed.comm.timeouts.connect": "1s"}
    with config.set(unreachable), pytest.raises(InvalidParameter, match=r"127\.0\.0\.1:1 does not"):
        run(SETTINGS, 2, backend="dask")


def test_invalid_requests_are_refused() -> None:
    with pytest.raises(UnknownName, match="local, dask, ray"):
        run(SETTINGS, 2, backend="abacus")
    with pytest.raises(InvalidParameter, match="jobs"):
        run(SETTINGS, 2, jobs=0)
