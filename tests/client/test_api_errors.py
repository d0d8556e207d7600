"""Errors of requests: one line that says what to do, for each way in which a token or an address can be wrong."""

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from countless.client.api import ApiClient
from countless.client.transport.endpoint import Endpoint, port_hint
from countless.errors import ServiceError
from countless.token_file import OPERATOR_TOKEN_FILE, token_problem, write_token

TOKEN = "countless-operator-x"  # noqa: S105


class Refusing(BaseHTTPRequestHandler):
    """As a coordinator does: 401 for operators' data, problems at /readyz; killed in the middle of the answer."""

    def do_GET(self) -> None:
        ready = self.path == "/readyz"
        self.send_response(503 if ready else 401)
        if self.path == "/cut-off":
            self.send_header("content-length", "1000")
        self.end_headers()
        texts = b'{"ready":false,"problems":["going down","x"]}', b'{"error":"a token of scope operator is needed"}'
        self.wfile.write(texts[0 if ready else 1])

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def error_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    monkeypatch.chdir(tmp_path)
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()

        def error(token: str | None = None, path: str = "/api/v1/sites") -> str:
            with pytest.raises(ServiceError) as refused:
                ApiClient(f"http://127.0.0.1:{server.server_port}", token).request("GET", path)
            return str(refused.value)

        yield error
        server.shutdown()


def test_refusal_names_the_scope_the_token_that_was_sent_and_where_the_operators_is(
    error_of: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed, where = "a token of scope operator is needed", "the operator's is operator.token in the state directory"
    unusable = "of scope operator is revoked, expired, or of another coordinator"
    assert error_of().startswith(f"{needed}, and none was sent: set COUNTLESS_TOKEN_FILE or COUNTLESS_TOKEN, or, on ")
    assert error_of("given").startswith(f"{needed}, and the one that was given is no token of Countless; {where}")
    write_token(Path("countless-state", OPERATOR_TOKEN_FILE), TOKEN)
    remedy = "the state directory of this coordinator goes into COUNTLESS_STATE_DIR"
    assert error_of() == f"{needed}, and the one in countless-state/operator.token {unusable}; {remedy}"
    (tmp_path / "file").write_text(TOKEN)
    monkeypatch.setenv("COUNTLESS_TOKEN_FILE", "file")
    assert error_of().startswith(f"{needed}, and the one in file (COUNTLESS_TOKEN_FILE) {unusable}; {where}")
    monkeypatch.setenv("COUNTLESS_TOKEN", "countless-site-x")
    assert error_of().startswith(f"{needed}, and the one in COUNTLESS_TOKEN has scope site; {where}")
    assert error_of(TOKEN).startswith(f"{needed}, and the one that was given {unusable}; {where}")
    assert TOKEN not in error_of(TOKEN)


def test_refused_site_is_told_which_token_it_has_sent_and_the_command_that_makes_one() -> None:
    start, end = "a token of scope site is needed, and", "`countless token create site --label NAME` makes one"
    for token, why in {
        "countless-read-x": "has scope read",
        "countless-site-x": "of scope site is revoked, expired, or of another coordinator",
        "x": "is no token of Countless",
    }.items():
        problem = token_problem("site", token, "the one in COUNTLESS_TOKEN")
        assert problem == f"{start} the one in COUNTLESS_TOKEN {why}; on the coordinator's machine, {end}"
    assert token_problem("site", None, "").startswith(f"{start} none was sent: set COUNTLESS_TOKEN_FILE or COUNTLESS")


def test_error_of_the_readiness_probe_has_its_problems(error_of: Callable[..., str]) -> None:
    assert error_of(path="/readyz") == "going down, x"


def test_port_of_serve_in_the_environment_is_explained_when_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Endpoint.parse("http://127.0.0.1:2686")
    assert port_hint(usual) == ""
    for other in ("2686", "tcp://10.0.0.1:2686", ""):
        monkeypatch.setenv("COUNTLESS_PORT", other)
        assert port_hint(usual) == ""
    monkeypatch.setenv("COUNTLESS_PORT", "2790")
    assert port_hint(usual).endswith("set COUNTLESS_URL=http://127.0.0.1:2790)")
    assert port_hint(Endpoint.parse("http://127.0.0.1:9")) == ""
    monkeypatch.setenv("COUNTLESS_URL", "http://127.0.0.1:2686")
    assert port_hint(usual) == ""


def test_refusal_that_is_cut_off_is_a_lost_connection(error_of: Callable[..., str]) -> None:
    assert error_of(path="/cut-off").startswith("connection lost: IncompleteRead")
