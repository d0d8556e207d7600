"""Windows as bars: what a coordinator sends of them is replayed through the page's own feed reader."""

import re

import pytest
from playwright.sync_api import Page, expect

import countless
from support.browser import SIZES, Window, event, hello
from support.service import Server

pytestmark = pytest.mark.slow

HOUR_S = 3600
NOW = 1_800_030_600  # half past eleven in New York
THIS_HOUR = NOW // HOUR_S * HOUR_S


def bar(hours_ago: int, lower: float, estimate: float, upper: float | None, state: str, *more: object) -> list[object]:
    start = THIS_HOUR - HOUR_S * hours_ago
    return [start, start + HOUR_S, lower, estimate, upper, state, *more]


ROWS = [
    *(bar(ago, 900 + ago, 900 + ago, 900 + ago, "closed") for ago in range(30, 3, -1)),
    bar(3, 950, 950, None, "incomplete", None, 0, 1),
    bar(2, 940, 970, 1000, "incomplete", None, 3),
    bar(1, 910, 920, 935, "incomplete", None, True),
    bar(0, 400.2, 440, 480.9, "open"),
]


def span(name: str, lower: float, estimate: float, upper: float, since: float | None = None) -> dict[str, object]:
    return {"name": name, "lower": lower, "estimate": estimate, "upper": upper, "since": since}


SPANS = [span("this-hour", 401, 440, 480), span("today", 9000, 9000, 9000, NOW - 8 * HOUR_S + 42)]
RATE = {"over": 60, "lower": 0.2, "estimate": 0.205, "upper": 0.21}
ZONE = {"now": NOW, "tz": "America/New_York"}


def feed(
    role: str,
    rate: dict[str, float] = RATE,
    spans: list[dict[str, object]] = SPANS,
    rows: list[list[object]] = ROWS,
) -> str:
    return "".join(
        (
            hello(role, NOW),
            event("history", points=[]),
            event("spans", **ZONE, rate=rate, spans=spans),
            event("bars", **ZONE, per="hour", choices=["hour", "day"], first=rows[0][0], rows=rows),
            event("answer", now=NOW, estimate=28_000, lower=27_000, upper=29_000, state="holding"),
        )
    )


def chosen_bars(page: Page) -> list[str]:
    """What the last bars mean, from the newest on."""
    slider, texts = page.get_by_role("slider", name="Increase"), []
    for _ in range(5):
        texts.append(str(slider.get_attribute("aria-valuetext")))
        slider.press("ArrowLeft")
    return texts


def test_counter_with_windows_is_shown_by_them(tab: Window, server: Server) -> None:
    """By months: a shorter window could end while the test runs."""
    with countless.connect(server.url, site="web-1") as client:
        page = tab.page
        orders = client.counter("orders", per="month", tz="Asia/Tokyo")
        orders.add(30)
        assert client.flush()
        page.goto(f"{server.url}/#/counter/orders")
        expect(page.get_by_role("heading", name="Per month")).to_be_visible()
        expect(page.locator("[data-figure=this-month]")).to_have_text("This month (Asia/Tokyo)30exact")
        expect(page.locator("[data-figure=total]")).to_have_text("Total30exact")
        expect(page.get_by_role("heading", name="Sites in this month")).to_be_visible()
        expect(page.get_by_role("row", name="web-1")).to_contain_text("100%")
        orders.add(5)
        assert client.flush()
        expect(page.locator(".bars-text")).to_contain_text(": 35 so far, ends at")
        page.goto(f"{server.url}/#/?find=orders")
        expect(page.get_by_role("row", name="orders")).to_contain_text("per month")


def test_counter_that_gets_windows_says_from_when_on_they_are_known(tab: Window, server: Server) -> None:
    """By months: a shorter window could end while the test runs."""
    page = tab.page
    with countless.connect(server.url, site="old") as client:
        client.counter("grown").add(2_000)
        assert client.flush()
        page.goto(f"{server.url}/#/counter/grown")
        expect(page.locator("[data-figure=total]")).to_contain_text("2,000 to")
    server.reader.request("PATCH", "/api/v1/counters/grown", {"per": "month"})
    expect(page.locator("[data-figure=total]")).to_have_text("Total2,000exact")
    with countless.connect(server.url, site="new") as client:
        client.counter("grown", per="month").add(30)
        assert client.flush()
        page.reload()
        known_from = re.compile(r"known from \w+,? 1 \w+, 00:00 on")
        expect(page.get_by_role("heading", name="Per month")).to_be_visible()
        expect(page.locator("[data-figure=total]")).to_have_text("Total2,030exact")
        expect(page.locator("[data-figure=this-month]")).to_contain_text(known_from)
        expect(page.locator(".bars-text")).to_contain_text(known_from)
        tab.screenshot("got-windows")


def replay(page: Page, body: str) -> None:
    page.unroute_all()
    page.route(
        re.compile(r"/page/feed\?"),
        lambda route: route.fulfill(body=body, content_type="text/event-stream"),
    )
    page.clock.install(time=NOW)


def test_what_is_not_known_is_not_0_and_a_counter_at_rest_has_the_rate_0(tab: Window, server: Server) -> None:
    """After a restart of the coordinator 200 s ago: there were 2,000 events before it, and may have been 20 since."""
    page, since = tab.page, NOW - 200
    spans = [span("this-hour", 0, 0, 20, since), span("today", 5, 12, 20, since)]
    rows = [[*bar(0, 0, 0, 20, "open"), since]]
    replay(page, feed("public", {"over": 60, "lower": 0, "estimate": 0, "upper": 1 / 30}, spans, rows))
    page.goto(f"{server.url}/#/counter/requests")
    expect(page.locator("[data-figure=this-hour]")).to_have_text("This hour–unknown before 11:26:40; 0 to 20 since")
    expect(page.locator("[data-figure=today]")).to_contain_text("5unknown before 11:26:40; 5 to 20 since")
    expect(page.locator("[data-figure=today]")).to_have_attribute("data-open", "true")  # shown as ≥ 5
    expect(page.locator(".hero")).to_have_text("0 per second")
    expect(page.locator(".range").first).to_have_text("at most 2 per minute, over the last minute")
    words = "11:00 to 12:00: unknown before 11:26:40; 0 to 20 since, ends at 12:00, in 30 min"
    expect(page.locator(".bars-text")).to_have_text(words)
    page.get_by_text("As a table").click()
    expect(page.get_by_role("row", name="11:00 to 12:00")).to_have_text("11:00 to 12:00–0?unknown before 11:26:40")
    tab.screenshot("unknown")
    replay(page, feed("public", {"over": 2, "lower": 0, "estimate": 0, "upper": 10}, spans, rows))
    page.reload()
    expect(page.locator(".hero")).to_have_text("– per second")  # two seconds say nothing
    expect(page.locator(".range").first).to_have_text("at most 10 per second, over the last 2 s")


def test_list_does_not_show_0_for_what_is_not_known(tab: Window, server: Server) -> None:
    since = NOW - 200
    figures = {"this-hour": span("this-hour", 0, 0, 20, since), "today": span("today", 5, 12, 20, since)}
    row: dict[str, object] = {
        "counter": "requests",
        "series": 0,
        "estimate": 2010,
        "lower": 2000,
        "upper": 2020,
        "state": "holding",
    }
    row |= {"tz": "UTC", "per": "hour", "first": THIS_HOUR, "bars": [[*bar(0, 0, 0, 20, "open"), since]], **figures}
    row["rate"] = {"over": 60, "lower": 0, "estimate": 0, "upper": 1 / 30}
    page_of_list = event("list", now=NOW, start=0, rows=[row], all=1, found=1, states={"holding": 1})
    replay(tab.page, hello("public", NOW) + page_of_list)
    tab.page.goto(f"{server.url}/#/")
    shown = tab.page.get_by_role("row", name="requests")
    expect(shown.locator("td.this-hour")).to_have_text("– unknown before 16:26")
    expect(shown.locator("td.today")).to_have_text("≥ 5 unknown before 16:26")
    expect(shown.locator("td.rate")).to_have_text("0 per second")
    tab.screenshot("unknown-list")


def test_windows_are_bars_that_say_how_sure_they_are(tab: Window, server: Server) -> None:
    page = tab.page
    page.route(
        re.compile(r"/page/feed\?"),
        lambda route: route.fulfill(body=feed("public"), content_type="text/event-stream"),
    )
    page.clock.install(time=NOW)
    page.goto(f"{server.url}/#/counter/requests")
    expect(page.locator(".hero")).to_have_text("12.3 per minute")
    expect(page.locator(".range").first).to_have_text("12 to 12.6, over the last minute")
    expect(page.locator("[data-figure=this-hour]")).to_contain_text("401 to 480")
    expect(page.locator("[data-figure=today]")).to_have_text(
        "Today (America/New_York)9,000unknown before 03:30:42; 9,000 since"
    )
    assert chosen_bars(page) == [
        "11:00 to 12:00: 440 (401 to 480) so far, ends at 12:00, in 30 min",
        "10:00 to 11:00: 920 (910 to 935), incomplete: waiting for sites",
        "09:00 to 10:00: 970 (940 to 1,000), incomplete: waiting for 3 sites",
        "08:00 to 09:00: at least 950, incomplete: 1 site ended without a last count",
        "07:00 to 08:00: 904, exact",
    ]
    expect(page.locator(".bars-text")).to_have_text("06:00 to 07:00: 905, exact")
    groups = page.locator(".bars-plot .bar-group > g")
    states = groups.evaluate_all("groups => groups.map((group) => group.dataset.state)")
    assert states == [*["closed"] * 27, *["incomplete"] * 3, "open"]
    whiskers = page.locator(".bars-plot .whisker").evaluate_all(
        "all => all.map((each) => each.getAttribute('d') !== '')"
    )
    assert whiskers == [*[False] * 27, True, True, True, True]
    page.get_by_text("As a table").click()
    table = page.get_by_role("table", name="Increase over time")
    expect(table.get_by_role("row")).to_have_count(len(ROWS) + 1)
    expect(table.get_by_role("row").nth(1)).to_have_text("11:00 to 12:00440401480open")
    expect(table.get_by_role("row").last).to_contain_text("Thu 14 Jan, 05:00 to 06:00")
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            assert tab.overflow() == 0
            tab.screenshot(f"windows-{size}-{theme}")
