"""Budgets in the JSON API: rules are created, read, changed and deleted; bad values change nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from countless.server.app import build_app
from countless.server.settings import Settings

LIMIT = {"name": "acme/tokens", "limit": 1000}


def client_of(directory: Path) -> TestClient:
    app = build_app(Settings(state_dir=str(directory)))
    return TestClient(app, base_url="http://127.0.0.1:2686", client=("127.0.0.1", 5000))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[TestClient]:
    with client_of(tmp_path) as client:
        yield client


def test_budget_is_created_read_changed_and_deleted(local: TestClient) -> None:
    made = local.post("/api/v1/budgets", json=LIMIT)
    assert made.status_code == 201
    unused = {"slack": 0.01, "used_lower": 0, "used_upper": 0, "leaked": 0, "holders": 0, "state": "open"}
    assert made.json() == LIMIT | unused
    assert local.get("/api/v1/budgets/acme/tokens").json() == made.json()
    assert local.get("/api/v1/budgets").json() == {"budgets": [made.json()]}
    changed = local.patch("/api/v1/budgets/acme/tokens", json={"limit": 2000, "slack": 0})
    assert changed.json() == made.json() | {"limit": 2000, "slack": 0}
    assert local.delete("/api/v1/budgets/acme/tokens").status_code == 204
    assert local.get("/api/v1/budgets").json() == {"budgets": []}


def test_budget_survives_a_restart(tmp_path: Path) -> None:
    with client_of(tmp_path) as before:
        before.post("/api/v1/budgets", json=LIMIT | {"slack": 0.5})
    with client_of(tmp_path) as after:
        status = after.get("/api/v1/budgets/acme/tokens").json()
    assert (status["limit"], status["slack"]) == (1000, 0.5)


@pytest.mark.parametrize("limit", [0, -1, 1.5, 1.0, 2**62 + 1, 2**70, True, "many", [1]])
def test_wrong_limit_is_refused_with_its_range(local: TestClient, limit: Any) -> None:
    local.post("/api/v1/budgets", json=LIMIT)
    made = local.post("/api/v1/budgets", json={"name": "other", "limit": limit})
    changed = local.patch("/api/v1/budgets/acme/tokens", json={"limit": limit, "slack": 0.5})
    for response in (made, changed):
        assert response.status_code == 400
        assert "limit must be an integer from 1 to 2**62" in response.json()["error"]
    (only,) = local.get("/api/v1/budgets").json()["budgets"]
    assert (only["limit"], only["slack"]) == (1000, 0.01)


@pytest.mark.parametrize("slack", [-0.1, 1, "small"])
def test_wrong_slack_is_refused_with_its_range(local: TestClient, slack: Any) -> None:
    local.post("/api/v1/budgets", json=LIMIT)
    made = local.post("/api/v1/budgets", json={"name": "other", "limit": 5, "slack": slack})
    changed = local.patch("/api/v1/budgets/acme/tokens", json={"limit": 5, "slack": slack})
    for response in (made, changed):
        assert response.status_code == 400
        assert "slack must be a number (int or float) from 0 to 1" in response.json()["error"]
    (only,) = local.get("/api/v1/budgets").json()["budgets"]
    assert (only["limit"], only["slack"]) == (1000, 0.01)


def test_unknown_and_taken_names_are_refused(local: TestClient) -> None:
    local.post("/api/v1/budgets", json=LIMIT)
    assert local.post("/api/v1/budgets", json=LIMIT).status_code == 409
    assert local.post("/api/v1/budgets", json=LIMIT | {"name": ""}).status_code == 400
    assert local.post("/api/v1/budgets", json=LIMIT | {"name": "b", "per": "day"}).status_code == 400
    for answer in (
        local.get("/api/v1/budgets/other"),
        local.patch("/api/v1/budgets/other", json={"limit": 5}),
        local.delete("/api/v1/budgets/other"),
    ):
        assert (answer.status_code, answer.json()) == (404, {"error": "there is no budget 'other'"})
