"""Random kill schedules with an outside witness: never more than the limit, no id twice, nothing lost with a state_dir.

`support/kill_schedules.py` says what a schedule is. The timers are those of the operating system: a seed repeats what
is drawn, not what the processes do with it.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from countless.core.budget.amounts import slack_units
from support.kill_schedules import Schedule, charged
from support.service import Server, python

TESTS = Path(__file__).parents[1]
SUPERVISOR = "from support.kill_schedules import main; main()"


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "coordinator", "--silent-after", "1s") as server:
        yield server


def run(server: Server, directory: Path, seeds: Iterable[int]) -> None:
    path = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    with python(SUPERVISOR, server.url, PYTHONPATH=path) as supervisor:
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        for seed in seeds:
            schedule, place = Schedule(seed, durable=seed % 5 != 4), directory / f"schedule-{seed}"
            place.mkdir()
            rule = {"name": schedule.name, "limit": schedule.limit, "slack": schedule.slack}
            server.reader.request("POST", "/api/v1/budgets", rule)
            print(seed, schedule.durable, place, file=supervisor.stdin, flush=True)
            while (line := supervisor.stdout.readline()) == "kill the coordinator\n":
                server.kill()
                server.start()
            assert line == "complete\n", (schedule, line)
            check(schedule, place / "witness", server)
            rmtree(place)


def check(schedule: Schedule, witness: Path, server: Server) -> None:
    least, most = charged(witness)
    status = server.reader.request("GET", f"/api/v1/budgets/{schedule.name}")
    assert least <= status["used_upper"] <= schedule.limit, (schedule, least, most, status)
    if schedule.durable:
        enough = schedule.limit - slack_units(schedule.slack, schedule.limit)
        assert status["used_lower"] == status["used_upper"] <= most, (schedule, least, most, status)
        assert most >= enough, (schedule, least, most, status)
    server.reader.request("DELETE", f"/api/v1/budgets/{schedule.name}")


@pytest.mark.slow
def test_gateways_killed_at_random_never_spend_more_than_the_limit(coordinator: Server, tmp_path: Path) -> None:
    run(coordinator, tmp_path, range(6))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1_000, 2_000, 10))
def test_thousand_kill_schedules_never_spend_more_than_the_limit(
    first: int, coordinator: Server, tmp_path: Path
) -> None:
    run(coordinator, tmp_path, range(first, first + 10))
