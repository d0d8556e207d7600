"""`countless lab attack`: JSON, tables, files, search, exit codes and invalid input."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from countless.errors import InvalidParameter, UnknownName
from countless_lab.arena.tournament import ADVERSARY_NAMES, SCHEME_NAMES
from countless_lab.cli.attack import attack

pytestmark = pytest.mark.slow

SMALL = ["--sites", "64", "--alpha", "0.1", "--events", "5e3", "--trials", "2", "--jobs", "1"]

app = typer.Typer()
app.command()(attack)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*SMALL, *arguments])


def test_json_has_the_result_of_a_match() -> None:
    result = invoke("--scheme", "lattice", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["trials"] == 2
    assert found["failures"] == 2
    assert found["failure_rate_upper"] == 1
    assert found["worst_error_over_alpha"] > 1
    assert found["messages"] > 0
    assert found["adversary"] == "stop-after-jump"
    assert found["claimed"] is False
    assert invoke("--scheme", "lattice", "--json").stdout == result.stdout


def test_table_of_one_match() -> None:
    result = invoke("--scheme", "lattice")
    assert result.exit_code == 0
    assert "2/2" in result.stdout
    assert "not a proof" in result.stdout


def test_table_of_the_tournament_shows_every_name() -> None:
    result = invoke("--scheme", "all", "--adversary", "all", "--events", "200", "--trials", "1")
    assert result.exit_code == 0
    for name in (*SCHEME_NAMES, *ADVERSARY_NAMES):
        assert f"{name} " in result.stdout, f"{name} is cut short"


def test_search_finds_an_adversary() -> None:
    result = invoke("--scheme", "lattice", "--adversary", "search", "--tries", "12", "--json")
    assert json.loads(result.stdout)["failures"] == 2


def test_feedback_follows_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("t,site\n" + "".join(f"{i},{'abc'[i % 3]}\n" for i in range(30)))
    result = invoke("--scheme", "deterministic", "--adversary", "feedback", "--trace", str(trace), "--json")
    assert json.loads(result.stdout)["failures"] == 0
    assert "trace" not in json.loads(result.stdout)["parameters"]  # too long to print


def test_out_writes_json_and_csv(tmp_path: Path) -> None:
    invoke("--scheme", "lattice,sampled", "--out", str(tmp_path / "here"))
    assert len(json.loads((tmp_path / "here" / "attack.json").read_text())["matches"]) == 2
    rows = list(csv.DictReader((tmp_path / "here" / "games.csv").read_text().splitlines()))
    assert [row["seed"] for row in rows] == ["1", "2", "1", "2"]
    assert rows[0]["scheme"] == "lattice"
    assert float(rows[0]["worst"]) > 1


def test_violated_guarantee_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless_lab.arena.tournament.claimed", lambda setting: True)
    assert invoke("--scheme", "lattice").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--events", "0"], "events"),
        (["--events", "1.5"], "events"),
        (["--events", "many"], "events"),
        (["--events", "inf"], "events"),
        (["--alpha", "0.5"], "alpha"),
        (["--delta", "0"], "delta"),
        (["--trials", "0"], "trials"),
        (["--scheme", "unknown"], "scheme"),
        (["--adversary", "unknown"], "adversary"),
        (["--against", "unknown"], "adversary"),
    ],
)
def test_invalid_input_is_refused(arguments: list[str], word: str) -> None:
    result = CliRunner().invoke(app, [*SMALL, *arguments])
    assert isinstance(result.exception, InvalidParameter | UnknownName)
    assert word in str(result.exception)
