"""A counter with labels on the page: the sum, and its largest series as bars with whiskers."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

import countless
from support.browser import SIZES, browser, window
from support.service import Server

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=window.hacked=1>"


def event(name: str, **data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def test_largest_series_of_a_counter_are_shown_with_the_sum(tmp_path: Path) -> None:
    with Server(tmp_path) as server, countless.connect(server.url) as client, browser() as chromium:
        requests = client.counter("requests")
        for tenant, n in (("acme", 30), (HOSTILE, 9)):
            requests.labels(tenant=tenant).add(n)
        requests.add(1)
        assert client.flush()
        with window(chromium) as tab:
            page = tab.page
            page.goto(f"{server.url}/#/counter/requests")
            expect(page.locator("[data-figure=total] .value")).to_have_text("40")
            rows = page.locator("table.by-label tbody tr")
            expect(rows).to_have_count(3)
            labels = [f'{{tenant="{tenant}"}}' for tenant in ("acme", HOSTILE)]
            expect(rows.locator("th")).to_have_text([*labels, "without labels"])
            expect(rows.nth(0).locator("td.number")).to_have_text(["30", "30", "30", "75%"])
            requests.labels(tenant="umbrella").add(50)
            expect(rows.locator("th").first).to_have_text('{tenant="umbrella"}')
            assert page.evaluate("window.hacked") is None
            rows.nth(1).locator("a").click()
            expect(page.locator("h1")).to_have_text('requests{tenant="acme"}')
            page.get_by_role("link", name="All of requests").click()
            expect(rows).to_have_count(4)
            assert not tab.errors


def test_bars_of_series_fit_on_every_screen(tmp_path: Path) -> None:
    names = [f'requests{{route="/a/very/long/route/number/{number}",tenant="acme"}}' for number in range(20)]
    rows = [[name, 1000 / (number + 1), 900 / (number + 1), 1200 / (number + 1)] for number, name in enumerate(names)]
    stream = (
        event("hello", role="public", now=0, keepalive_s=4)
        + event("history", points=[])
        + event("top", rows=rows, all=1234, estimate=4000)
        + event("answer", now=0, estimate=4000, lower=3900, upper=4100, state="holding")
    )
    with Server(tmp_path) as server, browser() as chromium, window(chromium) as tab:
        page = tab.page
        page.route("**/page/feed?*", lambda route: route.fulfill(content_type="text/event-stream", body=stream))
        page.goto(f"{server.url}/#/counter/requests")
        for name, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            expect(page.locator("table.by-label tbody tr")).to_have_count(20)
            expect(page.locator(".by-label-section .note")).to_have_text("1,214 more series are smaller.")
            assert tab.overflow() <= 0, name
            tab.screenshot(f"labels-{name}")
