"""The JSON API: what each scope may see and do, and responses to bad requests."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from starlette.testclient import TestClient

from countless.core.answer import State
from countless.errors import InvariantBroken
from countless.server.app import build_app
from countless.server.kinds.counters import Counters
from countless.server.settings import STATE_FILE, Settings
from countless.server.site_server import SiteServer
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import new_token
from countless.token_file import SCOPES
from countless.wire.frames import VERSION, Hello, Join, decode_down, encode_frames
from support.service import TIMEOUT_S

PUBLIC = {"counter", "estimate", "lower", "upper", "state", "as_of", "per"}
OPERATOR_ONLY = [
    ("GET", "/api/v1/operator/hits"),
    ("GET", "/api/v1/sites"),
    ("DELETE", "/api/v1/sites/web"),
    ("POST", "/api/v1/counters"),
    ("PATCH", "/api/v1/counters/hits"),
    ("DELETE", "/api/v1/counters/hits"),
    ("GET", "/metrics"),
    ("POST", "/api/v1/budgets"),
    ("PATCH", "/api/v1/budgets/tokens"),
    ("DELETE", "/api/v1/budgets/tokens"),
]
READ = [
    ("GET", "/api/v1/counters"),
    ("GET", "/api/v1/counters/hits"),
    ("GET", "/api/v1/watch/hits"),
    ("GET", "/api/v1/windows/hits"),
    ("GET", "/api/v1/top/hits"),
    ("GET", "/api/v1/budgets"),
    ("GET", "/api/v1/budgets/tokens"),
]


def client_of(directory: Path, host: str = "127.0.0.1", is_open: bool = True) -> TestClient:
    app = build_app(Settings(state_dir=str(directory), open=is_open))
    return TestClient(app, base_url="http://127.0.0.1:2686", client=(host, 5000))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[TestClient]:
    with client_of(tmp_path) as client:
        yield client


def test_counter_is_created_configured_read_and_deleted(local: TestClient) -> None:
    made = local.post("/api/v1/counters", json={"name": "hits/a", "alpha": 0.05, "adversary": "sees-everything"})
    assert made.status_code == 201
    assert made.json()["alpha"] == 0.05
    assert local.post("/api/v1/counters", json={"name": "hits/a"}).status_code == 409
    read = local.get("/api/v1/counters/hits/a").json()
    assert set(read) == PUBLIC
    assert (read["counter"], read["estimate"], read["state"]) == ("hits/a", 0, "exact")
    changed = local.patch("/api/v1/counters/hits/a", json={"scheme": "deterministic", "label_cap": 5})
    assert (changed.json()["configured_scheme"], changed.json()["label_cap"]) == ("deterministic", 5)
    assert [each["counter"] for each in local.get("/api/v1/counters").json()["counters"]] == ["hits/a"]
    assert local.delete("/api/v1/counters/hits/a").status_code == 204
    assert local.get("/api/v1/counters/hits/a").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[]", b"{", b'{"name": 7}', b'{"name": ""}', b'{"name": "a\\nb"}', b'{"name": "a", "alpha": 2}'),
        *(b'{"name": "a", "scheme": "magic"}', b'{"name": "a", "colour": 1}', b'{"name": "a", "label_cap": -1}'),
        b'{"name": "a", "adversary": "martian"}',
        *(b'{"name": "' + b"a" * 501 + b'"}', b" " * 70_000, b"[" * 60_000, b'{"name": "\xff"}'),
    ],
)
def test_bad_body_is_a_400(local: TestClient, body: bytes) -> None:
    response = local.post("/api/v1/counters", content=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]
    assert local.get("/api/v1/counters").json()["counters"] == []


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("alpha", "1%", "a number such as 0.01 or null"),
        ("label_cap", "5", "an integer or null"),
        ("name", 5, "text"),
        ("family", "yes", "true or false"),
    ],
)
def test_field_of_a_wrong_type_is_named(local: TestClient, field: str, value: object, allowed: str) -> None:
    response = local.post("/api/v1/counters", json={"name": "a"} | {field: value})
    assert response.json()["error"] == f"{field} = {value!r} is not allowed: {field} must be {allowed}"


def test_probes_need_no_token(tmp_path: Path) -> None:
    with client_of(tmp_path, "192.0.2.1") as other:
        assert other.get("/livez").status_code == 200
        assert other.get("/readyz").json() == {"ready": True, "problems": []}
        assert other.get("/healthz").status_code == 200


def status(client: TestClient, method: str, path: str, **headers: str) -> int:
    with client.stream(method, path, headers=headers) as response:
        return response.status_code


def test_each_scope_allows_its_operations_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / STATE_FILE)
    tokens = {scope: new_token(store, scope, scope) for scope in SCOPES}
    with client_of(tmp_path, is_open=False) as client:
        for method, path in OPERATOR_ONLY + READ[:2]:
            for scope, token in {**tokens, "no": "countless-operator-guess"}.items():
                allowed = scope == "operator" or ((method, path) in READ and scope == "read")
                code = status(client, method, path, authorization=f"Bearer {token}")
                assert (code != 401) is allowed, (method, path, scope)
            assert status(client, method, path) == 401  # the machine's own programs need one too
    store.close()


def test_token_is_stored_as_a_hash_and_can_be_revoked(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / STATE_FILE)
    token = new_token(store, "read", "dashboards")
    assert token.encode() not in (tmp_path / STATE_FILE).read_bytes() + (tmp_path / f"{STATE_FILE}-wal").read_bytes()
    with client_of(tmp_path, is_open=False) as client:
        assert status(client, "GET", "/api/v1/counters", authorization=f"Bearer {token}") == 200
        assert store.revoke("dashboards") == 1  # the last token: nothing is open now
        for headers in ({"authorization": f"Bearer {token}"}, {}):
            for method, path in OPERATOR_ONLY + READ:
                assert status(client, method, path, **headers) == 401
    store.close()


@pytest.mark.parametrize(("method", "path"), [*OPERATOR_ONLY, *READ])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},  # a web page that a browser here shows
        {"host": "evil.example"},  # a name that was bound to this machine
        {"x-forwarded-for": "192.0.2.1"},  # another machine, through a proxy on this one
    ],
)
def test_web_pages_and_proxies_on_this_machine_need_a_token(
    local: TestClient, method: str, path: str, headers: dict[str, str]
) -> None:
    assert status(local, method, path, **headers) == 401


def test_other_machines_are_rejected_by_an_open_coordinator(tmp_path: Path) -> None:
    with client_of(tmp_path, "192.0.2.1") as other:
        for method, path in OPERATOR_ONLY + READ:
            assert status(other, method, path) == 401


def test_read_scope_sees_the_answer_and_no_more(local: TestClient) -> None:
    with local.websocket_connect("ws://127.0.0.1:2686/api/v1/site") as site:
        site.send_bytes(next(encode_frames([Hello(VERSION, "web", 1), Join("hits", 0, 3)])))
        decode_down(site.receive_bytes())
        listed, read = local.get("/api/v1/counters").json()["counters"], local.get("/api/v1/counters/hits").json()
        assert set(read) == PUBLIC
        assert [set(each) for each in listed] == [PUBLIC]
        assert read["estimate"] == 3
        assert "web" not in str(read) + str(listed)
        watched = local.get("/api/v1/operator/hits").json()
        assert {"round", "sites", "messages", "bytes", "messages_to_double"} < set(watched)


def test_family_has_no_operator_view(local: TestClient) -> None:
    local.post("/api/v1/counters", json={"name": "uses", "family": True, "per": "day"})
    response = local.get("/api/v1/operator/uses")
    assert response.status_code == 400
    assert "'uses' is a family" in response.json()["error"]


def test_failed_background_task_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Event()

    def fail(host: SiteServer) -> None:
        raise InvariantBroken("a bug")

    monkeypatch.setattr(SiteServer, "tick_in_slices", fail)
    monkeypatch.setattr("countless.server.app.raise_signal", lambda number: ended.set())
    with client_of(tmp_path) as client:
        assert ended.wait(TIMEOUT_S)
        assert client.get("/readyz").status_code == 503


class OneByOne(dict[str, Any]):
    """A dictionary that nothing may walk through."""

    def __iter__(self) -> Any:
        raise AssertionError("a request that needs no token looked at all counters")

    keys = values = items = __iter__


def test_probe_does_not_look_at_every_counter(tmp_path: Path) -> None:
    with client_of(tmp_path) as client:
        for number in range(5):
            client.post("/api/v1/counters", json={"name": f"hits{number}"})
        server = client.app.state.server  # type: ignore[attr-defined]
        assert client.get("/readyz").json() == {"ready": True, "problems": []}
        kind = server.kind(Counters)
        learned = {}
        for counter in kind.trackers.values():  # as after a restart, while a site has not answered yet
            learned[counter] = counter.published_answer
            counter._published = learned[counter]._replace(state=State.LEARNING)
            server._recovering.append((kind, counter))
        counters, kind.by_name = kind.by_name, OneByOne(kind.by_name)
        answers = []
        for counter, answer in learned.items():
            answers.append(client.get("/readyz").status_code)
            counter._published = answer
        assert answers == [503] * 5
        assert client.get("/readyz").json() == {"ready": True, "problems": []}
        kind.by_name = counters


def test_metrics_have_their_documented_names(local: TestClient) -> None:
    local.post("/api/v1/counters", json={"name": 'hits{route="/a"}'})
    page = local.get("/metrics")
    for name in ("count_total", "count_lower", "count_upper", "answer_state", "rounds_total", "messages_total"):
        assert f'countless_{name}{{counter="hits{{route=\\"/a\\"}}"' in page.text
    for name in ("message_bytes_total", "sites", "build_info"):
        assert f"countless_{name}{{" in page.text
    assert page.headers["content-type"].startswith("text/plain")
    modern = local.get("/metrics", headers={"accept": "application/openmetrics-text"})
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert modern.text.endswith("# EOF\n")
