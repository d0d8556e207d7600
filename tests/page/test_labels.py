"""A counter with labels on the page: the sum, and its largest series as bars with whiskers."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import countless
from support.browser import SIZES, Window, event, hello
from support.service import Server

pytestmark = pytest.mark.slow

HOSTILE = "<svg onload=window.hacked=1>"


def test_counter_is_one_row_and_its_page_has_the_sum_and_the_largest_series(tab: Window, server: Server) -> None:
    page = tab.page
    with countless.connect(server.url) as client:
        requests = client.counter("labelled")
        for tenant, n in (("initech", 30), (HOSTILE, 9)):
            requests.labels(tenant=tenant).add(n)
        requests.add(1)
        assert client.flush()
        page.goto(f"{server.url}/#/?find=labelled")
        row = page.locator("table.counters tbody tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("sum of 3 series")
        expect(row.locator(".total b")).to_have_text("40")
        page.get_by_label("Find").fill("initech")  # a series is found by its labels
        expect(row.locator("th")).to_have_text('labelled{tenant="initech"}')
        page.goto(f"{server.url}/#/counter/labelled")
        expect(page.locator("[data-figure=total] .value")).to_have_text("40")
        expect(page.locator(".hero")).to_contain_text("per second")
        expect(page.locator(".chart .line")).to_have_attribute("d", re.compile("^M"))
        expect(page.get_by_text("Cost, plan and sites are on the page of each series.")).to_be_visible()
        rows = page.locator("table.by-label tbody tr")
        expect(rows).to_have_count(3)
        labels = [f'{{tenant="{tenant}"}}' for tenant in ("initech", HOSTILE)]
        expect(rows.locator("th")).to_have_text([*labels, "without labels"])
        expect(rows.nth(0).locator("td.number")).to_have_text(["30", "30", "30", "75%"])
        requests.labels(tenant="umbrella").add(50)
        expect(rows.locator("th").first).to_have_text('{tenant="umbrella"}')
        assert page.evaluate("window.hacked") is None
        rows.nth(1).locator("a").click()
        expect(page.locator("h1")).to_have_text('labelled{tenant="initech"}')
        page.get_by_role("link", name="All of labelled").click()
        expect(rows).to_have_count(4)


def test_windows_of_a_counter_with_labels_are_known_after_a_restart(tab: Window, tmp_path: Path) -> None:
    """By months: a shorter window could end while the test runs."""
    with Server(tmp_path) as server:
        with countless.connect(server.url) as client:
            for route in ("/a", "/b"):
                client.counter("monthly", per="month").labels(route=route).add(20)
        server.kill()
        server.start()
        tab.page.goto(f"{server.url}/#/counter/monthly")
        expect(tab.page.locator("[data-figure=this-month] .value")).to_have_text("40")
        expect(tab.page.locator("[data-figure=total] .value")).to_have_text("40")
        tab.page.goto("about:blank")  # the coordinator ends before the tab, which would say so


@pytest.mark.soak
def test_bars_of_series_fit_on_every_screen(tab: Window, server: Server) -> None:
    names = [f'requests{{route="/a/very/long/route/number/{number}",tenant="acme"}}' for number in range(20)]
    rows = [[name, 1000 / (number + 1), 900 / (number + 1), 1200 / (number + 1)] for number, name in enumerate(names)]
    stream = (
        hello("public", 0)
        + event("history", points=[])
        + event("top", rows=rows, all=1234, estimate=4000)
        + event("window-top", rows=rows[:3], all=3, estimate=2000, per="hour")
        + event("answer", now=0, estimate=4000, lower=3900, upper=4100, state="holding")
    )
    page = tab.page
    page.route("**/page/feed?*", lambda route: route.fulfill(content_type="text/event-stream", body=stream))
    page.goto(f"{server.url}/#/counter/requests")
    for name, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        expect(page.locator("#top ~ table tbody tr")).to_have_count(20)
        expect(page.locator("#window-top")).to_have_text("By label, this hour")
        expect(page.locator("#window-top ~ table tbody tr")).to_have_count(3)
        expect(page.locator(".top-section .note")).to_have_text("1,214 more series are smaller.")
        assert tab.overflow() <= 0, name
        tab.screenshot(f"labels-{name}")
