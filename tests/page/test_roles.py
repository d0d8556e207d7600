"""Roles: what the page shows with each token, and what the feed sends to readers at all."""

import json
import re
from collections import Counter as Tally
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

import countless
from countless.client.api import ApiClient
from countless.server.settings import STATE_FILE
from countless.server.storage.sqlite_store import SqliteStore
from countless.server.tokens import new_token
from countless.token_file import SCOPES
from support.browser import window
from support.service import TIMEOUT_S, Server

pytestmark = pytest.mark.slow

SITE = "secret-site"
MAX_EVENTS = 50  # in which a feed has sent everything
ANSWER = {"estimate", "lower", "upper", "state"}
PUBLIC = {  # every event a reader may get, with every field in it
    "hello": {"role", "now", "keepalive_s", "version", "started"},
    "keepalive": {"now"},
    "history": {"points"},
    "answer": {"now", *ANSWER},
    "spans": {"now", "tz", "rate", "spans"},
    "bars": {"now", "tz", "per", "choices", "first", "rows"},
    "list": {"now", "start", "rows", "all", "found", "states"},
    "rows": {"now", "rows", "all", "found", "states"},
}
ROW = {"counter", "series", *ANSWER, "tz", "per", "first", "bars", "rate", "this-hour", "today"}
BUDGET = {"budget", "limit", "lower", "upper", "leaked", "state", "per", "resets_at", "max_names", "names"}


class Guarded:
    """A coordinator with tokens, and a site that counts."""

    def __init__(self, directory: Path) -> None:
        store = SqliteStore(directory / STATE_FILE)
        self.tokens = {scope: new_token(store, scope, scope) for scope in SCOPES}
        store.close()
        self.server = Server(directory, closed=True)
        self.url = self.server.url
        self.site = countless.connect(self.url, site=SITE, token=self.tokens["site"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("state"))
    guarded.site.counter("hits").add(30)
    assert guarded.site.flush(TIMEOUT_S)
    with guarded.server:
        yield guarded
        assert guarded.site.close(TIMEOUT_S)


def stream(guarded: Guarded, path: str, scope: str) -> Iterator[tuple[str, dict[str, object], bytes]]:
    """Name, data and bytes of each event of a feed."""
    connection = HTTPConnection(urlsplit(guarded.url).netloc, timeout=TIMEOUT_S)
    connection.request("GET", path, headers={"Authorization": f"Bearer {guarded.tokens[scope]}"})
    response = connection.getresponse()
    assert response.status == 200
    name = ""
    try:
        for line in response:
            if line.startswith(b"event: "):
                name = line[7:-1].decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:]), line
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/page/feed", {"list": 1, "rows": 1}),
        ("/page/feed?counter=hits&find=secret&sort=site", {"history": 1, "spans": 1, "bars": 1, "answer": 2}),
    ],
)
def test_feed_of_a_reader_has_no_operator_data(guarded: Guarded, path: str, expected: dict[str, int]) -> None:
    seen, events = Tally[str](), stream(guarded, path, "read")
    for name, data, line in events:
        assert set(data) == PUBLIC[name], (name, data)
        assert SITE.encode() not in line
        if name in ("list", "rows"):
            assert all(set(row) == ROW for row in data["rows"])  # type: ignore[attr-defined]
        assert all(len(point) == 5 for point in data.get("points", ()))  # type: ignore[attr-defined]
        if name not in seen and name in ("answer", "list"):
            guarded.site.counter("hits").add(10_000)  # reports arrive
            assert guarded.site.flush(TIMEOUT_S)
        seen[name] += 1
        if all(seen[each] >= times for each, times in expected.items()):
            break
    events.close()  # type: ignore[attr-defined]


def test_feed_of_a_reader_has_no_site_of_a_budget(guarded: Guarded) -> None:
    rule = {"name": "tokens", "limit": 100}
    ApiClient(guarded.url, guarded.tokens["operator"]).request("POST", "/api/v1/budgets", rule)
    assert guarded.site.budget("tokens").take(30, wait=90)
    for path, last in (("/page/feed?show=budgets", "budgets"), ("/page/feed?budget=tokens", "budget")):
        events = stream(guarded, path, "read")
        assert next(events)[0] == "hello"
        name, data, line = next(events)
        assert (name, SITE.encode() in line) == (last, False)
        assert set(data["rows"][0] if last == "budgets" else data) >= BUDGET  # type: ignore[index]
        if last == "budget":
            name, data, _ = next(events)  # after some seconds
            assert (name, set(data)) == ("keepalive", PUBLIC["keepalive"])
        events.close()  # type: ignore[attr-defined]
    events = stream(guarded, "/page/feed?budget=tokens", "operator")
    seen: dict[str, Any] = {}
    for name, data, _ in islice(events, MAX_EVENTS):
        seen[name] = data
        if "holders" in seen:
            break
    events.close()  # type: ignore[attr-defined]
    assert seen["holders"]["rows"][0][:2] == [SITE, "connected"]


def test_feed_of_an_operator_has_details_sites_and_rounds(guarded: Guarded) -> None:
    events = stream(guarded, "/page/feed?counter=hits", "operator")
    seen: dict[str, Any] = {}
    for name, data, _ in islice(events, MAX_EVENTS):
        seen[name] = data
        if {"details", "sites", "marks", "answer"} <= set(seen):
            break
    events.close()  # type: ignore[attr-defined]
    assert seen["sites"]["rows"][0][0] == SITE


def test_revoked_token_ends_the_feed(guarded: Guarded) -> None:
    store = SqliteStore(guarded.server.directory / STATE_FILE)
    guarded.tokens["guest"] = new_token(store, "read", "guest")
    events = stream(guarded, "/page/feed", "guest")
    assert next(events)[0] == "hello"
    assert store.revoke("guest") == 1
    assert "keepalive" not in [name for name, _, _ in events]  # the stream ended
    store.close()


@pytest.mark.parametrize(
    ("query", "problem"),
    [("sort=magic", "sort"), ("start=-1", "start"), ("start=x", "start"), ("find=" + "a" * 501, "find")],
)
def test_bad_query_is_a_400(guarded: Guarded, query: str, problem: str) -> None:
    connection = HTTPConnection(urlsplit(guarded.url).netloc, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {guarded.tokens['operator']}"}
    connection.request("GET", f"/page/feed?counter=hits&{query}", headers=headers)
    response = connection.getresponse()
    assert (response.status, problem in json.load(response)["error"]) == (400, True)
    connection.close()


def test_page_asks_for_a_token_once_and_shows_its_role(chromium: Browser, guarded: Guarded) -> None:
    with window(chromium) as tab:
        page = tab.page
        page.goto(f"{guarded.url}/#/counter/hits")
        field = page.get_by_label("Token")
        expect(field).to_be_focused()
        tab.screenshot("token")
        field.fill(guarded.tokens["site"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("scope read or operator")
        page.get_by_label("Token").fill(guarded.tokens["read"])
        page.keyboard.press("Enter")
        expect(page.get_by_text("Public view")).to_be_visible()
        expect(page.locator(".chart .line")).to_be_visible()
        for heading in ("Sites", "What it costs", "Why this plan"):
            expect(page.get_by_role("heading", name=heading)).to_be_hidden()
        tab.screenshot("public")
        page.reload()  # the token is asked for once in a tab
        expect(page.get_by_text("Public view")).to_be_visible()
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        page.get_by_role("button", name="Forget token").click()
        page.get_by_label("Token").fill(guarded.tokens["operator"])
        page.get_by_role("button", name="Show the totals").click()
        expect(page.get_by_text("Operator view")).to_be_visible()
        expect(page.get_by_role("row", name=SITE)).to_be_visible()
        expect(page.locator("#refused")).to_be_hidden()
        with countless.connect(guarded.url, site="locked-out") as site:  # without a token
            site.counter("hits").add(5)
            expect(page.locator("#refused")).to_contain_text("Sites are refused from 1 address")
            page.get_by_text("Which").click()
            expect(page.get_by_text(re.compile(r"127\.0\.0\.1: no token \(\d+ attempts?, the last at"))).to_be_visible()
            tab.screenshot("refused")
            site.close(0)
        tab.expect_errors("401")
