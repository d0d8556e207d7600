"""Families and distributions on the page: the largest labels, and quantiles, as bars with whiskers."""

import pytest
from playwright.sync_api import expect

import countless
from support.browser import SIZES, Window, event, hello
from support.service import Server

pytestmark = pytest.mark.slow

HOSTILE = "<svg onload=window.hacked=1>"


def test_family_is_one_row_and_its_page_has_the_largest_labels(tab: Window, server: Server) -> None:
    page = tab.page
    with countless.connect(server.url) as client:
        pages, latency = client.counter("pages", family=True), client.distribution("page-ms")
        for name, n in (("acme", 30), (HOSTILE, 9)):
            pages.labels(tenant=name).add(n)
        pages.add(1)
        for value in range(1, 41):
            latency.observe(value)
        assert client.flush()
        page.goto(f"{server.url}/#/?find=page")
        rows = page.locator("table.counters tbody tr")
        expect(rows.locator("th")).to_have_text(["page-ms", "pages"])
        expect(rows.locator(".total b")).to_have_text(["40", "40"])
        page.goto(f"{server.url}/#/counter/pages")
        expect(page.locator("[data-figure=total] .value")).to_have_text("40")
        labels = page.locator("#top ~ table tbody tr")
        expect(labels.locator("th")).to_have_text(
            [f'{{tenant="{each}"}}' for each in ("acme", HOSTILE)] + ["without labels"]
        )
        expect(labels.nth(0).locator("td.number")).to_have_text(["30", "30", "30", "75%"])
        expect(page.locator(".top-section .note").first).to_have_text("Each label is known to within 1% of the total.")
        assert page.evaluate("window.hacked") is None
        labels.nth(0).locator("a").click()
        expect(page.locator("h1")).to_have_text('pages{tenant="acme"}')
        expect(page.locator("[data-figure=total] .value")).to_have_text("30")
        page.goto(f"{server.url}/#/counter/page-ms")
        quantiles = page.locator("#quantiles ~ table tbody tr")
        expect(quantiles.locator("th").first).to_have_text("50% (median)")
        median, least, most = (float(text) for text in quantiles.first.locator("td.number").all_inner_texts())
        assert least <= 20 <= most, median


def test_window_of_a_family_is_chosen_and_in_the_address(tab: Window, server: Server) -> None:
    page = tab.page
    with countless.connect(server.url) as client:
        visits, latency = client.counter("visits", family=True, per="month"), client.distribution("ms", per="month")
        visits.labels(tenant="vandelay").add(30)
        latency.observe(17)
        assert client.flush()
        page.goto(f"{server.url}/#/counter/visits")
        section = page.locator(".top-section")
        choice = section.get_by_role("group", name="Window").get_by_role("button")
        expect(choice).to_have_text(["This month", "Last month", "Total"])
        expect(section.get_by_role("button", pressed=True)).to_have_text("This month")
        expect(section.locator("tbody th")).to_have_text(['{tenant="vandelay"}'])
        tab.screenshot("family-windows")
        choice.nth(1).click()
        expect(section.locator(".note")).to_contain_text("Nothing was counted in the last month.")
        page.reload()
        expect(section.get_by_role("button", pressed=True)).to_have_text("Last month")
        choice.nth(2).click()
        expect(section.locator("tbody th")).to_have_text(['{tenant="vandelay"}'])
        expect(section.locator(".note")).to_have_text("Each label is known to within 1% of the total of a window.")
        page.goto(f"{server.url}/#/?find=Vandelay")
        expect(page.locator("table.counters tbody tr th")).to_have_text(['visits{tenant="vandelay"}'])
        page.goto(f"{server.url}/#/counter/ms?window=last")
        expect(page.locator(".quantiles-section .note")).to_have_text("Nothing was observed in the last month.")
        page.locator(".quantiles-section").get_by_role("button", name="This month").click()
        expect(page.locator("#quantiles ~ table tbody tr").first.locator("th")).to_have_text("50% (median)")


@pytest.mark.soak
def test_bars_of_families_fit_on_every_screen(tab: Window, server: Server) -> None:
    names = [f'pages{{page="/a/very/long/page/number/{number}",tenant="acme"}}' for number in range(20)]
    rows = [[name, 1000 / (n + 1) + 20, 1000 / (n + 1), 1000 / (n + 1) + 40] for n, name in enumerate(names)]
    values = [[0.5, 12.3, 11.9, 12.7], [0.9, 40.2, 38, 44.4], [0.99, 97, 90, 120], [0.999, 130, 118, None]]
    stream = (
        hello("operator", 0)
        + event("history", points=[])
        + event("top", rows=rows, all=10_000, estimate=4000, epsilon=0.01)
        + event("quantiles", rows=values, epsilon=0.01, accuracy=0.01)
        + event("answer", now=0, estimate=4000, lower=3900, upper=4100, state="holding")
    )
    page = tab.page
    page.route("**/page/feed?*", lambda route: route.fulfill(content_type="text/event-stream", body=stream))
    page.goto(f"{server.url}/#/counter/pages")
    for name, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        expect(page.locator("#top ~ table tbody tr")).to_have_count(20)
        expect(page.locator(".top-section .note").first).to_contain_text("9,980 more labels are smaller.")
        expect(page.locator("#quantiles ~ table tbody tr")).to_have_count(4)
        assert tab.overflow() <= 0, name
        tab.screenshot(f"families-{name}")
