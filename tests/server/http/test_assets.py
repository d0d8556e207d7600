"""The files of the page: no token is needed to load them; caching, compression, content security policy."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from countless.server.app import build_app
from countless.server.http.page import assets as page
from countless.server.settings import Settings
from countless_lab.arena.recording import record


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[TestClient]:
    app = build_app(Settings(state_dir=str(tmp_path)))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("192.0.2.1", 5000)) as client:
        yield client


def test_page_loads_without_a_token_and_its_data_do_not(stranger: TestClient) -> None:
    front = stranger.get("/")
    assert front.headers["content-type"].startswith("text/html")
    for address in re.findall(r'(?:src|href)="(/page/[^"]+)"', front.text):
        assert stranger.get(address).status_code == 200, address
    assert stranger.get("/page/feed").status_code == 401
    assert stranger.get("/page/nothing.js").status_code == 404
    assert stranger.get("/page/..%2Fpage.py").status_code == 404


def test_policy_allows_nothing_inline_and_no_other_host(stranger: TestClient) -> None:
    policy = stranger.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert {part.split()[-1] for part in policy.split("; ")} == {"'none'", "'self'"}
    for file in page.FOLDER.iterdir():
        text = file.read_text(encoding="utf-8")
        assert "innerHTML" not in text
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file  # no other host
        assert not re.search(r"<[^>]* (style|on\w+)=", text), file


def test_files_are_compressed_and_revalidated(stranger: TestClient) -> None:
    first = stranger.get("/page/app.js", headers={"accept-encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip"
    again = stranger.get("/page/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = stranger.get("/page/app.js", headers={"accept-encoding": "identity"})
    assert plain.text == first.text


def test_script_has_every_module_once_after_those_that_it_imports(stranger: TestClient) -> None:
    text = stranger.get("/page/app.js").text
    modules = re.findall(r"^const (\w+)_module = ", text, re.MULTILINE)
    assert sorted(modules) == sorted(file.stem for file in page.FOLDER.glob("*.js"))
    for name in modules:
        body = text.partition(f"const {name}_module = ")[2].partition("\n})();")[0]
        imported = re.findall(r"^const \{ .+ \} = (\w+)_module;$", body, re.MULTILINE)
        assert all(modules.index(each) < modules.index(name) for each in imported), name
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)


@pytest.mark.soak
def test_recorded_attack_is_what_the_command_records() -> None:
    """A change of a scheme changes it: record the match again."""
    assert json.loads(json.dumps(record())) == json.loads((page.FOLDER / "attack.json").read_text())
