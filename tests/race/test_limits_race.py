"""A small race for limits with all real components. Nothing that depends on speed is asserted."""

import json
import sys
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from race.__main__ import main
from race.limits.contestants.leases import BLOCKS_PER_SITE
from race.limits.contestants.registry import CONTESTANTS
from race.limits.play import Result, run
from race.limits.table import README_ROWS, measured
from race.limits.workloads import WORKLOADS, Workload

pytestmark = pytest.mark.slow

SITES, LIMIT, SEED = 3, 300, 3
TAKES = ("steady", "hot", "moving", "overload")
OURS = ("slack-1", "slack-0")
SYNCS = ("sync-10ms", "sync-100ms", "sync-1s")
QUICK = ("shares",)  # in `make test`; the others take half a minute


def workload(name: str) -> Workload:
    return WORKLOADS[name](SITES, LIMIT, SEED)._replace(real_time=False)


@cache
def raced(key: str) -> dict[str, Result]:
    """By workload."""
    contestant = CONTESTANTS[key]
    with closing(contestant.server()) as server:
        return {name: run(contestant, server, workload(name), name) for name in WORKLOADS}


@pytest.mark.parametrize(
    "key", [key if key in QUICK else pytest.param(key, marks=pytest.mark.soak) for key in CONTESTANTS]
)
def test_every_request_is_decided_while_the_server_runs(key: str) -> None:
    for name, result in raced(key).items():
        assert result.offered == len(workload(name).requests)
        assert result.undecided == result.offered_away - result.decided_away
        assert (result.offered_away > 0) == (name == "killed")


@pytest.mark.parametrize(
    "key",
    ["fixed-window", *(pytest.param(key, marks=pytest.mark.soak) for key in ("fixed-window-aof", "moving-window"))],
)
def test_limits_library_is_exact_and_costs_a_round_trip_for_each_request(key: str) -> None:
    for name in TAKES:
        result = raced(key)[name]
        assert (result.spent, result.over, result.first_refusal, result.wrong_refusals) == (LIMIT, 0, LIMIT, 0)
        assert result.messages >= 2 * result.offered
    assert raced(key)["holds"].over > 0  # test, then hit: what is in flight between them is not counted


@pytest.mark.soak
def test_leases_lose_at_most_a_block_for_each_site() -> None:
    stranded = SITES * (LIMIT // (BLOCKS_PER_SITE * SITES))
    for name in TAKES:
        result = raced("leases")[name]
        assert result.over == 0
        assert result.wrong_refusals <= stranded
        assert 0 < result.messages < result.offered


@pytest.mark.soak
@pytest.mark.parametrize("key", SYNCS)
def test_sync_spends_more_than_the_limit(key: str) -> None:
    overload = raced(key)["overload"]
    assert overload.over > 0
    period = CONTESTANTS[key].period
    assert period is not None
    ticks = round(workload("overload").seconds / period)
    assert overload.messages >= 2 * SITES * ticks  # a command and a reply; more when it connects


def test_shares_send_nothing_and_refuse_wrongly() -> None:
    for result in raced("shares").values():
        assert (result.over, result.messages, result.bytes) == (0, 0, 0)
        assert result.decided_away == result.offered_away
    hot = raced("shares")["hot"]
    assert hot.wrong_refusals >= LIMIT - hot.spent > LIMIT // 2


@pytest.mark.parametrize(("key", "slack"), [pytest.param("slack-1", 0.01, marks=pytest.mark.soak), ("slack-0", 0.0)])
def test_countless_keeps_both_halves_of_its_promise(key: str, slack: float) -> None:
    for name in TAKES:
        result = raced(key)[name]
        assert result.over == 0
        assert result.wrong_refusals <= slack * LIMIT
        assert result.first_refusal is not None
        assert result.first_refusal >= (1 - slack) * LIMIT
        assert 0 < result.messages < result.offered
    assert raced(key)["holds"].over == 0


@pytest.mark.soak
def test_redis_that_is_killed_forgets_what_was_spent_unless_it_has_an_append_only_file() -> None:
    for key in ("fixed-window", "leases"):
        assert raced(key)["killed"].over > 0
        assert raced(f"{key}-aof")["killed"].over == 0


@pytest.mark.soak
def test_decisions_while_the_server_is_away() -> None:
    assert raced("fixed-window")["killed"].decided_away == 0
    for key in SYNCS:
        killed = raced(key)["killed"]
        assert killed.decided_away == killed.offered_away
    for key in OURS:
        killed = raced(key)["killed"]
        assert (killed.over, killed.spent) == (0, LIMIT)
        assert killed.wrong_refusals <= 0.01 * LIMIT


@pytest.mark.soak
def test_tables_of_all_workloads_and_one_summary() -> None:
    results = [result for key in CONTESTANTS for result in raced(key).values()]
    tables = {table.name: table for table in measured(results)}
    assert list(tables) == [*(f"limits-{name}-3" for name in WORKLOADS), "limits-3", "limits-summary"]
    summary = tables.pop("limits-summary")
    assert [row[0] for row in summary.rows] == list(README_ROWS.values())
    for table in tables.values():
        assert [row[0] for row in table.rows] == [contestant.name for contestant in CONTESTANTS.values()]
        assert all(len(row) == len(table.columns) for row in table.rows)


Capture = pytest.CaptureFixture[str]


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["race", "limits", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_limits_command_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    numbers = tmp_path / "out" / "limits.json"
    options = ["--contestant", "shares", "--sites", "2", "--limit", "100", "--json", str(numbers)]
    assert command(monkeypatch, *options) == 0
    assert "L/k per site" in capsys.readouterr().out
    rows = json.loads(numbers.read_text())["limits"]
    assert [row["workload"] for row in rows] == list(WORKLOADS)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--workload", "sideways"], "steady"),
        (["--contestant", "abacus"], "fixed-window"),
        (["--write", "--workload", "steady"], "without --workload"),
    ],
)
def test_invalid_input_of_the_limits_race_is_refused_before_the_run(
    options: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert command(monkeypatch, *options) == 2
    assert complaint in capsys.readouterr().err
