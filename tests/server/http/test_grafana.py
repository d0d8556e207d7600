"""Every metric and label that the Grafana dashboard and the alert rules use is in `/metrics`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from countless.core.answer import State
from countless.server.app import build_app
from countless.server.settings import Settings
from countless.wire.frames import VERSION, Hello, Join, encode_frames

DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "countless.json"
ALERTS = Path(__file__).parents[3] / "deploy" / "prometheus" / "countless-alerts.yaml"
FUNCTIONS = {"by", "count", "increase", "or", "rate", "sum", "time", "topk", "label_values"}
ALERT_FUNCTIONS = {"absent", "and", "histogram_quantile"}


def real_metrics(directory: Path) -> dict[str, set[str]]:
    """Names of metrics with their labels, of a coordinator with sites, windows, budgets and one rejected request."""
    app = build_app(Settings(state_dir=str(directory), open=True))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("127.0.0.1", 5000)) as client:
        for name in ("tokens", "keys/*"):
            assert client.post("/api/v1/budgets", json={"name": name, "limit": 10}).status_code == 201
        assert client.get("/metrics", headers={"x-forwarded-for": "192.0.2.1"}).status_code == 401
        with client.websocket_connect("ws://127.0.0.1:2686/api/v1/site") as site:
            site.send_bytes(
                next(encode_frames([Hello(VERSION, "web", 1), Join("hits", 0, 3), Join("visits@hour:490000", 0, 1)]))
            )
            site.receive_bytes()
            text = client.get("/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.name: set(sample.labels) for sample in samples}


def targets(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every expression with its legend."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"], ""


def test_dashboard_uses_existing_metrics_and_labels(tmp_path: Path) -> None:
    real, seen = real_metrics(tmp_path), set()
    for expression, legend in targets(json.loads(DASHBOARD.read_text())):
        metrics = set(re.findall(r"countless_\w+", expression))
        assert metrics, expression
        assert metrics <= set(real), expression
        seen |= metrics
        allowed = set.intersection(*(real[name] for name in metrics))
        used = set(re.findall(r"(\w+)\s*=~?\s*\"", expression)) | set(re.findall(r"{{(\w+)}}", legend))
        for inside in re.findall(r"by \(([\w, ]+)\)|label_values\(\w+, (\w+)\)", expression):
            used |= set(re.findall(r"\w+", " ".join(inside)))
        assert used <= allowed, (expression, used - allowed)
        states = re.findall(r"state=\"(\w+)\"", expression)
        assert set(states) in (set(), set(State)), expression
        words = set(re.findall(r"[a-z]\w+", re.sub(r"\"[^\"]*\"|\[[^]]*\]|\$\w+", "", expression)))
        assert words <= metrics | used | FUNCTIONS, expression
    assert {"countless_count_total", "countless_count_lower", "countless_count_upper", "countless_answer_state"} <= seen
    assert {"countless_window", "countless_window_lower", "countless_window_upper"} <= seen


def test_alerts_use_existing_metrics_and_labels(tmp_path: Path) -> None:
    """As `promtool check rules`, but for the grammar of expressions: its package is a server of 90 MB."""
    real = real_metrics(tmp_path) | {"countless_open_connections": set()}
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    page = (ALERTS.parents[2] / "docs/operate/failures.md").read_text(encoding="utf-8")
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names)
    for rule in group["rules"]:
        expression, notes = rule["expr"], rule["annotations"]
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert notes["summary"]
        assert notes["description"]
        assert f"`{rule['alert']}`" in page
        metrics = set(re.findall(r"(?:countless|process)_\w+", expression))
        assert metrics
        assert metrics <= set(real), expression
        for metric, label, value in re.findall(r"(\w+)\{(\w+)=\"(\w+)\"\}", expression):
            assert label in real[metric], expression
            assert value in {*State, "silent"}, expression
        for inside in re.findall(r"by \(([\w, ]+)\)", expression):
            assert all(set(re.findall(r"\w+", inside)) <= real[metric] for metric in metrics), expression
        assert expression.count("(") == expression.count(")")
        plain = re.sub(r"\"[^\"]*\"|\[\d+m\]|\{\w+=|by \([^)]*\)|on \([^)]*\)", "", expression)
        assert set(re.findall(r"[a-z]\w+", plain)) <= metrics | FUNCTIONS | ALERT_FUNCTIONS, expression
        assert not set(plain) & set("[]{"), expression
        for label in re.findall(r"\$labels\.(\w+)", notes["summary"]):
            assert any(label in real[metric] for metric in metrics)


def test_dashboard_panels_do_not_overlap() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
