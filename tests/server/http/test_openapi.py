"""The OpenAPI document describes the application: every path, method, status and response."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route
from starlette.testclient import TestClient

from countless.server.app import build_app
from countless.server.settings import STATE_FILE, Settings
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import new_token

BASE = "http://127.0.0.1:2686"
DOCUMENT = build_app(Settings()).state.openapi
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
CALLS = [(path, method.upper()) for path, methods in DOCUMENT["paths"].items() for method in methods]
# A stream of events never ends: it has tests of its own, in test_answers.py.
FINITE = [(path, method) for path, method in CALLS if "/watch/" not in path]
MODES = [
    (path, method, mode)
    for path, method in FINITE
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    if mode is GenerationMode.POSITIVE or {"parameters", "requestBody"} & DOCUMENT["paths"][path][method.lower()].keys()
]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    directory = tmp_path_factory.mktemp("openapi")
    store = SqliteStore(directory / STATE_FILE)
    token = new_token(store, "operator", "test")
    store.close()
    app = build_app(Settings(state_dir=str(directory), max_counters=30))
    headers = {"authorization": f"Bearer {token}"}
    with TestClient(app, BASE, raise_server_exceptions=False, headers=headers) as client:
        yield client


@pytest.mark.slow
def test_document_is_served_without_a_token_and_is_valid(client: TestClient) -> None:
    served = client.get("/api/v1/openapi.json", headers={"authorization": "Bearer unknown"})
    assert (served.status_code, served.json()) == (200, DOCUMENT)
    assert DOCUMENT["openapi"] == "3.1.0"
    SCHEMA.validate()


def test_routes_and_document_have_the_same_operations() -> None:
    routed = {
        (re.sub(":name}", "}", route.path), method)
        for route in build_app(Settings()).routes
        if isinstance(route, Route) and not route.path.startswith("/page") and route.path != "/"
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert routed == set(CALLS)


def test_every_schema_reference_resolves() -> None:
    referred = set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT)))
    assert referred <= set(DOCUMENT["components"]["schemas"])


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_other_method_is_a_405_with_the_allowed_methods(client: TestClient, path: str) -> None:
    refused = client.request("PUT", path.format(name="x", site="x"))
    assert refused.status_code == 405
    documented = {method.upper() for method in DOCUMENT["paths"][path]}
    assert {method.strip() for method in refused.headers["allow"].split(",")} == documented | (
        {"HEAD"} if "GET" in documented else set()
    )
    assert refused.json() == {"error": "Method Not Allowed"}


def test_name_with_a_line_break_is_a_name(client: TestClient) -> None:
    assert client.delete("/api/v1/sites/a%0Ab%0A").json() == {"forgotten": 0}


def test_unknown_path_is_a_404_in_json(client: TestClient) -> None:
    assert client.get("/api/v1/nothing").json() == {"error": "Not Found"}


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method", "mode"), MODES)
def test_response_to_any_request_is_as_documented(
    client: TestClient, path: str, method: str, mode: GenerationMode
) -> None:
    operation = SCHEMA[path][method]
    client.post("/api/v1/counters", json={"name": "known", "per": "hour"})
    for name in ("{x}", "a/b"):
        client.post("/api/v1/counters", json={"name": name})

    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.headers.pop("Authorization", None)
        if case.path_parameters and len(str(case.path_parameters.get("name", ""))) % 2:
            case.path_parameters["name"] = "known"  # else nearly all would be 404
        request = case.as_transport_kwargs(base_url=BASE)
        headers = {name: value for name, value in request["headers"].items() if name.lower() != "authorization"}
        body = {"json": request["json"]} if "json" in request else {"content": request.get("data")}
        url, params = request["url"], request.get("params")
        case.validate_response(client.request(method, url, params=params, headers=headers, **body), checks=CHECKS)

    ask()
