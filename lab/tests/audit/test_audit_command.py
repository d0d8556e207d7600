"""`countless lab audit`: tables, JSON, exit codes, and errors that name the field and its limit."""

import json

import pytest
import typer
from typer.testing import CliRunner

from countless.errors import InvalidParameter, UnknownName
from countless_lab.cli.audit import audit

QUICK = [
    "--sites",
    "400",
    "--alpha",
    "0.05",
    "--events",
    "3",
    "--tapes",
    "1",
    "--transcripts",
    "1",
    "--plays",
    "100",
    "--power",
    "1",
]


def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(audit)
    return app


@pytest.mark.slow
@pytest.mark.soak
def test_audit_command_passes_the_correct_mechanism() -> None:
    result = CliRunner().invoke(command(), QUICK)
    assert result.exit_code == 0, result.output
    assert "no violation" in result.output
    assert "This is no proof" in result.output
    assert "proved" not in result.output


@pytest.mark.slow
def test_audit_command_rejects_in_json() -> None:
    result = CliRunner().invoke(command(), [*QUICK, "--mechanism", "noise-off", "--json", "--seed", "5"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["rejected"] is True
    assert report["power"] == {"defect": "noise-1.25-too-small", "rejected": 1, "runs": 1}
    assert report["seed"] == 5
    verdicts = {finding["audit"]: finding["verdict"] for finding in report["findings"]}
    assert verdicts.pop("stated law") == "no violation found"  # the law says that there is no noise
    assert {verdicts[name] for name in ("exhaustive", "random", "noise tapes")} == {"rejected"}
    assert "4 phases of 9, noise 0 and 0" in {finding["shape"] for finding in report["findings"]}


@pytest.mark.soak
def test_audit_command_rejects_in_text() -> None:
    result = CliRunner().invoke(command(), [*QUICK, "--mechanism", "forgets-a-leak"])
    assert result.exit_code == 1
    assert "seen:" in result.output


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--sites", "64"], "sites"),
        (["--alpha", "0.7"], "alpha"),
        (["--eta", "0"], "eta"),
        (["--events", "9"], "events"),
        (["--tapes", "0"], "tapes"),
        (["--plays", "5"], "plays"),
        (["--confidence", "1"], "confidence"),
        (["--transcripts", "0"], "transcripts"),
        (["--power", "-1"], "power"),
    ],
)
def test_audit_command_names_the_invalid_field(arguments: list[str], field: str) -> None:
    """The command line turns this exception into one line and exit code 2."""
    result = CliRunner().invoke(command(), [*QUICK, *arguments])
    assert isinstance(result.exception, InvalidParameter)
    assert result.exception.parameter == field
    assert result.exception.allowed


@pytest.mark.parametrize(("option", "field"), [("--mechanism", "mechanism"), ("--calibration", "calibration")])
def test_audit_command_refuses_unknown_names(option: str, field: str) -> None:
    result = CliRunner().invoke(command(), [*QUICK, option, "nonsense"])
    assert isinstance(result.exception, UnknownName)
    assert result.exception.parameter == field
