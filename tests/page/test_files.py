"""The files of the page: who may load them, how they are kept, and the policy they come with."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from countless.lab.arena.recording import record
from countless.server.app import build_app
from countless.server.http import assets as page
from countless.server.settings import Settings


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[TestClient]:
    app = build_app(Settings(state_dir=str(tmp_path)))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("192.0.2.1", 5000)) as client:
        yield client


def test_anybody_may_load_the_page_and_nobody_its_data(stranger: TestClient) -> None:
    front = stranger.get("/")
    assert front.headers["content-type"].startswith("text/html")
    for address in re.findall(r'(?:src|href)="(/page/[^"]+)"', front.text):
        assert stranger.get(address).status_code == 200, address
    assert stranger.get("/page/feed").status_code == 401
    assert stranger.get("/page/nothing.js").status_code == 404
    assert stranger.get("/page/..%2Fpage.py").status_code == 404


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere(stranger: TestClient) -> None:
    policy = stranger.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert {part.split()[-1] for part in policy.split("; ")} == {"'none'", "'self'"}
    for file in page.FOLDER.iterdir():
        text = file.read_text(encoding="utf-8")
        assert "innerHTML" not in text
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file  # nothing comes from elsewhere
        assert not re.search(r"<[^>]* (style|on\w+)=", text), file


def test_files_are_packed_and_not_sent_twice(stranger: TestClient) -> None:
    first = stranger.get("/page/app.js", headers={"accept-encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip"
    again = stranger.get("/page/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = stranger.get("/page/app.js", headers={"accept-encoding": "identity"})
    assert plain.text == first.text
    assert gzip.decompress(page.files()["app.js"].packed) == plain.content


def test_the_script_for_charts_is_plotlys_own_and_kept_for_a_year(stranger: TestClient) -> None:
    found = stranger.get("/page/charts").json()
    script = stranger.get(found["script"])
    assert "plotly.js v" in script.text[:200]
    assert "max-age=31536000" in script.headers["cache-control"]
    assert stranger.get(found["script"], headers={"if-none-match": script.headers["etag"]}).status_code == 304


def test_without_plotly_the_page_says_what_to_install(stranger: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    page.plotly.cache_clear()
    try:
        assert stranger.get("/page/charts").json() is None
        assert stranger.get("/page/plotly.js").text == "charts need: pip install plotly\n"
    finally:
        page.plotly.cache_clear()


@pytest.mark.slow
def test_the_recording_is_what_the_command_records() -> None:
    """From its seed, to the last message: whoever changes a scheme records the match again."""
    assert json.loads(json.dumps(record())) == json.loads((page.FOLDER / "attack.json").read_text())
