"""Budgets in the JSON API: rules are created, read, changed and deleted; bad values change nothing."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from starlette.testclient import TestClient

from countless.server.app import build_app
from countless.server.settings import Settings

LIMIT = {"name": "acme/tokens", "limit": 1000}
DEFAULTS: dict[str, Any] = {
    "slack": 0.01,
    "per": None,
    "tz": "UTC",
    "anchor": None,
    "window": None,
    "resets_at": None,
    "kind": "spending",
    "on_loss": "charge",
    "on_unreachable": "refuse",
    "template": None,
    "max_names": None,
    "names": None,
    "rolling": None,
}
UNUSED = {"used_lower": 0, "used_upper": 0, "held": 0, "leaked": 0, "holders": 0, "state": "open"}
MONTHLY = LIMIT | {"per": "month", "tz": "Europe/Berlin", "anchor": 31}


def client_of(directory: Path) -> TestClient:
    app = build_app(Settings(state_dir=str(directory), open=True))
    return TestClient(app, base_url="http://127.0.0.1:2686", client=("127.0.0.1", 5000))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[TestClient]:
    with client_of(tmp_path) as client:
        yield client


def test_budget_is_created_read_changed_and_deleted(local: TestClient) -> None:
    made = local.post("/api/v1/budgets", json=LIMIT)
    assert made.status_code == 201
    assert made.json() == LIMIT | DEFAULTS | UNUSED
    assert local.get("/api/v1/budgets/acme/tokens").json() == made.json()
    assert local.get("/api/v1/budgets").json() == {"budgets": [made.json()], "next": None}
    changed = local.patch("/api/v1/budgets/acme/tokens", json={"limit": 2000, "slack": 0})
    assert changed.json() == made.json() | {"limit": 2000, "slack": 0}
    assert local.delete("/api/v1/budgets/acme/tokens").status_code == 204
    assert local.get("/api/v1/budgets").json() == {"budgets": [], "next": None}


def test_rolling_budget_is_created_and_its_window_cannot_be_changed(local: TestClient) -> None:
    made = local.post("/api/v1/budgets", json=LIMIT | {"rolling": "1m"})
    assert (made.status_code, made.json()) == (201, LIMIT | DEFAULTS | UNUSED | {"rolling": 60.0})
    assert local.post("/api/v1/budgets/acme/tokens/reset").json() == made.json()
    refused = local.patch("/api/v1/budgets/acme/tokens", json={"rolling": 61})
    assert (refused.status_code, refused.json()["error"].split()[0]) == (400, "rolling")
    assert local.patch("/api/v1/budgets/acme/tokens", json={"rolling": "60s", "limit": 7}).json()["limit"] == 7


@pytest.mark.parametrize("rule", [{"rolling": 0.5}, {"rolling": "soon"}, {"rolling": 60, "per": "minute"}])
def test_wrong_window_is_refused(local: TestClient, rule: dict[str, Any]) -> None:
    refused = local.post("/api/v1/budgets", json=LIMIT | rule)
    assert (refused.status_code, refused.json()["error"].split()[0]) == (400, "rolling")
    assert local.get("/api/v1/budgets").json()["budgets"] == []


def test_template_is_created_read_changed_and_deleted(local: TestClient) -> None:
    made = local.post("/api/v1/budgets", json={"name": "keys/*", "limit": 100, "per": "minute", "max_names": 5})
    assert made.status_code == 201
    assert (made.json()["max_names"], made.json()["names"], made.json()["template"]) == (5, 0, None)
    unused = local.get("/api/v1/budgets/keys/abc").json()
    assert (unused["limit"], unused["per"], unused["template"], unused["max_names"]) == (100, "minute", "keys/*", None)
    changed = local.patch("/api/v1/budgets/keys/*", json={"limit": 50, "max_names": 7}).json()
    assert (changed["limit"], changed["max_names"]) == (50, 7)
    own = local.patch("/api/v1/budgets/keys/vip", json={"limit": 1000}).json()
    assert (own["limit"], own["template"]) == (1000, None)
    assert [each["name"] for each in local.get("/api/v1/budgets").json()["budgets"]] == ["keys/*", "keys/vip"]
    assert local.delete("/api/v1/budgets/keys/abc").status_code == 404  # it is not in use
    reset = local.post("/api/v1/budgets/keys/*/reset")
    assert (reset.status_code, "name must be a name that follows the template" in reset.json()["error"]) == (400, True)
    assert local.delete("/api/v1/budgets/keys/*").status_code == 204
    assert [each["name"] for each in local.get("/api/v1/budgets").json()["budgets"]] == ["keys/vip"]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("name", {"name": "keys*", "limit": 5}),
        ("max_names", {"name": "keys/*", "limit": 5, "max_names": 0}),
        ("max_names", {"name": "keys/*", "limit": 5, "max_names": 100_001}),
        ("max_names", {"name": "keys/*", "limit": 5, "max_names": "many"}),
        ("max_names", {"name": "keys", "limit": 5, "max_names": 5}),
    ],
)
def test_invalid_template_is_refused_and_nothing_is_made(local: TestClient, field: str, body: dict[str, Any]) -> None:
    refused = local.post("/api/v1/budgets", json=body)
    assert (refused.status_code, refused.json()["error"].split()[0]) == (400, field)
    assert local.get("/api/v1/budgets").json()["budgets"] == []


def test_list_of_budgets_is_paged(local: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("countless.server.http.budgets.routes.MAX_LISTED", 2)
    for name in "cab":
        local.post("/api/v1/budgets", json={"name": name, "limit": 5})
    first = local.get("/api/v1/budgets").json()
    assert ([each["name"] for each in first["budgets"]], first["next"]) == (["a", "b"], "b")
    last = local.get("/api/v1/budgets?after=b").json()
    assert ([each["name"] for each in last["budgets"]], last["next"]) == (["c"], None)


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
    for answer in (
        local.get("/api/v1/budgets/other"),
        local.patch("/api/v1/budgets/other", json={"limit": 5}),
        local.delete("/api/v1/budgets/other"),
    ):
        assert (answer.status_code, answer.json()) == (404, {"error": "there is no budget 'other'"})


def test_budget_with_periods_shows_its_window(local: TestClient) -> None:
    made = local.post("/api/v1/budgets", json=MONTHLY)
    assert made.status_code == 201
    window = made.json()["window"]
    assert made.json() == DEFAULTS | MONTHLY | {"window": window, "resets_at": window["end"]} | UNUSED
    start, end = datetime.fromisoformat(window["start"]), datetime.fromisoformat(window["end"])
    assert start <= datetime.now(UTC) < end
    berlin = ZoneInfo("Europe/Berlin")
    for each in (start, end):
        assert (each + timedelta(days=1)).astimezone(berlin).month != each.astimezone(berlin).month
        assert each.utcoffset() == each.astimezone(berlin).utcoffset()
    daily = local.post("/api/v1/budgets", json={"name": "daily", "limit": 1, "per": "day"}).json()
    assert (daily["anchor"], daily["tz"]) == (0, "UTC")


def test_budget_with_periods_survives_a_restart(tmp_path: Path) -> None:
    with client_of(tmp_path) as before:
        made = before.post("/api/v1/budgets", json=MONTHLY).json()
    with client_of(tmp_path) as after:
        assert after.get("/api/v1/budgets/acme/tokens").json() == made


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("per", "week"),
        ("per", 1),
        ("tz", "Europe/Nowhere"),
        ("tz", 5),
        ("anchor", 0),
        ("anchor", 32),
        ("anchor", "first"),
        ("kind", "other"),
        ("on_loss", "other"),
        ("on_unreachable", "other"),
    ],
)
def test_invalid_rule_is_refused_by_the_name_of_its_field(local: TestClient, field: str, value: object) -> None:
    local.post("/api/v1/budgets", json=MONTHLY)
    made = local.post("/api/v1/budgets", json=MONTHLY | {"name": "other", field: value})
    changed = local.patch("/api/v1/budgets/acme/tokens", json={field: value, "limit": 5})
    for response in (made, changed):
        assert response.status_code == 400
        assert f"{field} = {value!r} is not allowed: {field} must be" in response.json()["error"]
    (only,) = local.get("/api/v1/budgets").json()["budgets"]
    assert only["limit"] == 1000


@pytest.mark.parametrize("change", [{"per": "day", "anchor": 1}, {"tz": "UTC"}, {"anchor": 1}])
def test_calendar_of_a_budget_cannot_be_changed(local: TestClient, change: dict[str, object]) -> None:
    local.post("/api/v1/budgets", json=MONTHLY)
    response = local.patch("/api/v1/budgets/acme/tokens", json=change | {"limit": 5})
    assert response.status_code == 400
    assert "as it was created; delete the budget and create it again" in response.json()["error"]
    same = local.patch("/api/v1/budgets/acme/tokens", json={"per": "month", "anchor": 31, "limit": 5})
    assert same.json()["limit"] == 5


def test_budget_is_reset_also_if_its_name_ends_like_the_path(local: TestClient) -> None:
    for name in ("acme/tokens", "acme/reset"):
        made = local.post("/api/v1/budgets", json=LIMIT | {"name": name}).json()
        assert local.post(f"/api/v1/budgets/{name}/reset").json() == made
        assert local.get(f"/api/v1/budgets/{name}").json() == made
    unknown = local.post("/api/v1/budgets/other/reset")
    assert (unknown.status_code, unknown.json()) == (404, {"error": "there is no budget 'other'"})
