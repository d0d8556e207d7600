"""`countless lab simulate`: JSON, tables, files, traces and invalid input."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from countless.errors import InvalidParameter, UnknownName
from countless.schemes.compare import calibrations
from countless_lab.cli.simulate import simulate
from countless_lab.simulation.registry import STREAMS

pytestmark = pytest.mark.slow

SMALL = ["--sites", "20", "--alpha", "0.1"]

app = typer.Typer()
app.command()(simulate)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*SMALL, *arguments])


def found(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_has_costs_errors_and_alternatives() -> None:
    result = found("--events", "1e6", "--rate", "1000/s")
    assert result["events"] == 1_000_000
    assert result["messages"] == result["messages_up"] + result["messages_down"]
    assert 0 < result["messages"] < 5_000
    assert result["bytes"] > 4 * result["messages"]
    assert result["worst_error_over_alpha"] <= 1
    assert result["inside"] is True
    assert result["rounds"] >= 0
    assert result["seconds"] >= 0
    assert result["alternatives"] == {
        "per_event": 1_000_000,
        "flush_1s": 20_000,
        "flush_15s": pytest.approx(1_333, abs=20),
        "flush_60s": pytest.approx(333, abs=20),
    }


@pytest.mark.parametrize("stream", STREAMS)
def test_every_stream_runs(stream: str) -> None:
    result = found("--events", "20000", "--stream", stream, "--scheme", "deterministic")
    assert (result["events"], result["inside"]) == (20_000, True)


def test_stream_names_may_have_dashes() -> None:
    assert found("--events", "1000", "--stream", "hot-spots")["events"] == 1000


def test_same_seed_gives_the_same_run() -> None:
    first, again, other = (found("--events", "1e5", "--scheme", "lattice", "--seed", seed) for seed in "778")
    for result in (first, again, other):
        del result["seconds"]
    assert first == again
    assert first["messages"] != other["messages"]


def test_table_without_progress_bar_in_a_pipe() -> None:
    result = invoke("--events", "1e5")
    assert result.exit_code == 0
    assert "worst error / alpha" in result.stdout
    assert "only sites that counted something" in result.stdout.replace("\n", " ")
    assert "simulating" not in result.output


def test_runs_without_secrets_are_marked() -> None:
    """With so few events the paper's tracker still counts exactly."""
    small = ("--sites", "4", "--alpha", "0.2", "--scheme", "partial_dp_paper")
    assert "partial_dp_paper*, 4 sites" in invoke(*small, "--events", "200").stdout
    assert found(*small, "--events", "200")["randomised"] is False
    assert found(*small, "--events", "20000")["randomised"] is True
    assert "*" not in invoke("--scheme", "deterministic", "--sites", "4", "--events", "200").stdout


def test_out_writes_json_and_csv(tmp_path: Path) -> None:
    result = found("--events", "1e5", "--out", str(tmp_path / "new" / "folder"))
    folder = tmp_path / "new" / "folder"
    assert json.loads((folder / "simulate.json").read_text()) == result
    with (folder / "course.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["events"] == "100000"
    assert int(rows[-1]["messages"]) == result["messages"]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    file = tmp_path / "trace.csv"
    lines = [f"{event // 10},{'abc'[event % 7 % 3]}" for event in range(1000)]
    file.write_text("\n".join(["t,site", *lines]) + "\n")
    return str(file)


def test_trace_has_its_own_sites_and_clock(trace: str) -> None:
    result = found("--trace", trace)
    assert (result["events"], result["sites"], result["stream"]) == (1000, 3, "trace.csv")
    assert result["alternatives"] == {"per_event": 1000, "flush_1s": 300, "flush_15s": 21, "flush_60s": 6}
    at_a_rate = found("--trace", trace, "--rate", "1000/s", "--events", "500")
    assert (at_a_rate["events"], at_a_rate["alternatives"]["flush_1s"]) == (500, 3)


def test_traffic_of_a_trace_is_priced_for_every_scheme(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("t,site\n" + "".join(f"{second},{'ab' if second % 9 else 'c'}\n" for second in range(900)))
    result = found("--trace", str(trace), "--prices", "--alpha", "0.05")
    assert (result["sites"], result["events"], result["flushes"]["60s"]) == (2, 900, 30)
    assert result["candidates"]["deterministic"]["messages"] < 200
    assert result["candidates"].keys() == calibrations().keys()
    assert "--prices needs --trace" in str(invoke("--prices").exception)


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        (["--events", "1.5"], "events"),
        (["--events", "0"], "events"),
        (["--events", "many"], "events"),
        (["--events", "1e16"], "events"),
        (["--sites", "0"], "sites"),
        (["--alpha", "0.5"], "alpha"),
        (["--delta", "0"], "delta"),
        (["--rate", "10/y"], "rate"),
        (["--rate", "-1/s"], "rate"),
        (["--stream", "nonsense"], "stream"),
        (["--scheme", "nonsense"], "scheme"),
        (["--adversary", "nonsense"], "adversary"),
        (["--trace", "nowhere.csv"], "trace"),
    ],
)
def test_invalid_input_names_field_and_limit(arguments: list[str], parameter: str) -> None:
    result = invoke("--events", "1000", *arguments)
    assert isinstance(result.exception, InvalidParameter | UnknownName)
    assert result.exception.parameter == parameter
    assert "must be" in str(result.exception)


def test_more_events_than_the_trace_has_are_refused(trace: str) -> None:
    result = invoke("--trace", trace, "--events", "1001")
    assert "at most 1,000" in str(result.exception)


def test_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = invoke("--events", "100", "--out", str(tmp_path / "file" / "folder"))
    assert isinstance(result.exception, InvalidParameter)
    assert result.exception.parameter == "out"
