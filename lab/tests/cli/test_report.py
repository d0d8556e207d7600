"""`countless lab report`: one file that needs nothing else, with every figure and table in it."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from countless_lab.arena import report_data
from countless_lab.arena.page import render
from countless_lab.arena.report_data import Attacked, Config, ReportData
from countless_lab.cli.report import report


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four plans of each scheme, and shorter games."""
    for module in ("report_data", "figures"):
        for name in ("SITES", "MAP_SITES"):
            monkeypatch.setattr(f"countless_lab.arena.{module}.{name}", (16, 64))
        for name in ("ALPHAS", "MAP_ALPHAS"):
            monkeypatch.setattr(f"countless_lab.arena.{module}.{name}", (0.01, 0.1))
    monkeypatch.setattr(report_data, "TYPICAL_SITES", 64)
    monkeypatch.setattr(report_data, "ADVERSARY_NAMES", ("uniform", "stop-after-jump"))
    monkeypatch.setattr("countless_lab.cli.report.Config", _small_config)


def _small_config(**asked: int) -> Config:
    return Config(**{**asked, "jobs": 1}, path_sites=64, path_alpha=0.1, path_events=3000)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_report_is_one_self_contained_file(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(report)
    arguments = ["--out", str(tmp_path), "--games", "1", "--sites", "32", "--events", "500"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.exception
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "https://cdn" not in page.split("<body>")[1]
    assert '<script src="' not in page
    assert "Plotly.newPlot" in page
    for heading in ("An attack, event by event", "The tournament", "Messages against sites", "Messages against alpha"):
        assert heading in page
    for heading in ("Messages against the total", "Which plan is the cheapest", "The frameworks the paper argues"):
        assert heading in page
    assert page.count('<p class="finding">') == 7
    numbers = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert {match["scheme"] for match in numbers["tournament"]} >= {"hyz", "dithered", "auto"}


def test_violated_guarantee_is_marked_on_the_page() -> None:
    def match(claimed: bool, failures: int) -> dict[str, object]:
        facts = {"sites": 4, "alpha": 0.1, "delta": 0.05, "events": 10, "trials": 20, "claimed": claimed}
        worst = {"worst_error_over_alpha": 2.0, "failures": failures, "failure_rate_lower": failures / 30}
        names = {"scheme": "s<1>", "adversary": f"a{claimed}{failures}", "randomised": claimed}
        return {**names, **facts, **worst}

    exact = {**match(True, 0), "scheme": "without-secrets", "randomised": False}
    tournament = [match(True, 0), match(False, 20), match(True, 20), exact]
    two = {name: [1.0, 2.0] for name in report_data.SHOWN}
    data = ReportData(
        attacked=[Attacked("hyz", [1, 2], [0.0, 2.0])],
        attack={"sites": 4, "alpha": 0.1, "adversary": "x"},
        by_sites=two,
        lower_bound=[1.0, 2.0],
        by_alpha=two,
        by_total=two,
        totals=[1.0, 2.0],
        cheapest=[["sampled"]],
        ratio=[[1.0]],
        tournament=tournament,
        frameworks=[],
    )
    body = render(data).split("<body>")[1]
    assert "The guarantee of s&lt;1&gt; is refuted. Broken where no guarantee covers the adversary: s&lt;1&gt;." in body
    assert "The largest error, measured by the allowed one: 2.00 times for hyz." in body
    for kind in ("held", "not-covered", "violated"):
        assert body.count(f'<td class="{kind}">') == 1
    assert "<th>s&lt;1&gt;</th></tr>" in body
    assert "every game of theirs ended so: without-secrets." in body
