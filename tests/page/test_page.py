"""The page in a real browser, on a real coordinator with a hundred counters and two hundred sites."""

import json
import re
import signal
from math import ceil
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

import countless
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.server.http.page.assets import FOLDER
from countless.wire.frames import VERSION, Hello, Join, encode_frames
from support.browser import SIZES, Window, event, window
from support.page_state import populate
from support.service import TIMEOUT_S, Server, until

pytestmark = pytest.mark.slow

PAPER: dict[Literal["light", "dark"], str] = {"dark": "rgb(18, 20, 23)", "light": "rgb(251, 250, 248)"}
TOTAL = "[data-figure=total] .value"
HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=1</script>",
    'שלום {"עולם"} العربية',
    "🚀 launches 🧨",
    "a" * 200,
    "50%/of?all#things&more+so",
    "javascript:window.hacked=1",
]


def test_counter_is_found_updated_live_and_linkable(tab: Window, server: Server) -> None:
    page = tab.page
    with countless.connect(server.url, site="web-1") as client:
        client.counter("requests").add(30)
        assert client.flush()
        page.goto(server.url)
        expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
        expect(page.get_by_text("Operator view")).to_be_visible()
        page.get_by_label("Find").fill("quest")
        page.get_by_role("link", name="requests").click()
        expect(page).to_have_url(f"{server.url}/#/counter/requests")
        expect(page.locator(TOTAL)).to_have_text("30")
        expect(page.locator(".badge")).to_have_text("●Exact")
        expect(page.locator(".chart .line")).to_have_attribute("d", re.compile("^M"))
        client.counter("requests").add(10_000)
        assert client.flush()
        answer = server.answer("requests")
        expect(page.locator(TOTAL)).to_have_text(f"{answer['estimate']:,.0f}")
        bounds = f"{ceil(answer['lower']):,} to {int(answer['upper']):,}"
        expect(page.locator("[data-figure=total]")).to_contain_text(bounds)
        for figure in ("this-hour", "today"):  # which may have begun a moment ago
            expect(page.locator(f"[data-figure={figure}]")).to_contain_text(re.compile(r"[\d,]+( to [\d,]+|exact)$"))
        expect(page.locator(".hero")).to_have_text(re.compile(r"^[\d,.]+ per second$"))
        expect(page.locator(".range").first).to_contain_text("over the last")
        bars = page.get_by_role("slider", name="Increase")
        expect(bars).to_have_attribute("aria-valuetext", re.compile(r"so far, ends at \d\d:\d\d, in \d+ s$"))
        expect(page.locator(".badge")).to_have_text(re.compile(r"^◐Within ±[\d.]+%$"))
        expect(page.get_by_role("row", name="web-1")).to_contain_text("100%")
        costs = page.get_by_role("row", name="One message per event")
        expect(costs.locator("td")).to_have_text([re.compile("^10,030 "), "", re.compile(r"\d"), "none", "none"])
        expect(page.get_by_role("row", name="Flush every 15 s").locator(".age")).to_have_text("up to 15 s")
        expect(page.get_by_role("row", name="Flush every 15 s").locator(".error")).to_contain_text("missing")
        expect(page.locator("tr.ours .error")).to_have_text(re.compile(r"^± \d+$"))
        expect(page.locator("#version")).to_have_text(f"Countless {countless.__version__}")
        expect(page.get_by_role("region", name="Why this plan")).to_contain_text("deterministic")
        expect(page).to_have_title(re.compile(r"^[\d,.]+ per second requests – Countless$"))
        page.get_by_role("button", name="All", exact=True).click()
        tab.screenshot("counter")


def test_total_of_programs_that_have_ended_is_exact(tab: Window, server: Server) -> None:
    with countless.connect(server.url, site="web-1") as client:
        client.counter("ended").add(2_000)
        assert client.flush()
        tab.page.goto(f"{server.url}/#/counter/ended")
        expect(tab.page.locator(".badge")).to_have_text(re.compile("^◐Within"))
        expect(tab.page.locator(TOTAL)).not_to_have_text("2,000")
    expect(tab.page.locator(TOTAL)).to_have_text("2,000")
    expect(tab.page.locator("[data-figure=total]")).to_contain_text("exact")
    expect(tab.page.locator(".badge")).to_have_text("●Exact")
    tab.screenshot("ended")


def test_counter_created_later_appears_by_itself(tab: Window, server: Server) -> None:
    tab.page.goto(f"{server.url}/#/counter/tomorrow")
    expect(tab.page.get_by_text("There is no counter tomorrow")).to_be_visible()
    server.reader.request("POST", "/api/v1/counters", {"name": "tomorrow"})
    expect(tab.page.locator(TOTAL)).to_have_text("0")
    expect(tab.page.get_by_role("heading", name="What it costs")).to_be_visible()
    server.reader.request("DELETE", "/api/v1/counters/tomorrow")
    expect(tab.page.get_by_text("There is no counter tomorrow")).to_be_visible()


def test_counters_are_searched_sorted_and_paged(tab: Window, server: Server) -> None:
    page = tab.page
    page.goto(server.url)
    rows = page.locator("table.counters tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("51–100 of")).to_be_visible()
    tab.screenshot("many-counters")
    page.get_by_label("Find").fill("COUNTER 11")
    expect(rows).to_have_count(10)
    page.get_by_label("Sort").select_option("Largest total")
    expect(rows.first).to_contain_text("counter 119")
    expect(rows.first).to_contain_text("1,119")
    expect(rows.first.locator(".mini .box")).to_have_count(0)  # nothing was counted since the start: nothing is drawn
    page.reload()  # the address has the query
    expect(rows.first).to_contain_text("counter 119")
    page.get_by_label("Find").fill("nowhere")
    expect(page.get_by_text("No counter has nowhere in its name.")).to_be_visible()


@pytest.mark.soak
def test_table_of_ten_thousand_sites_is_sorted_and_searched(chromium: Browser, tmp_path: Path) -> None:
    populate(tmp_path, sites=10_000)
    with Server(tmp_path, "--silent-after", "2s") as server, window(chromium) as tab:
        page = tab.page
        page.goto(f"{server.url}/#/counter/fleet")
        rows = page.locator("table.sites tbody tr")
        expect(rows).to_have_count(50)
        expect(page.get_by_text("1–50 of 10,000 sites")).to_be_visible()
        expect(rows.first).to_contain_text("▲ silent")
        expect(page.locator(".badge").first).to_have_text("▲Sites missing")
        page.get_by_role("button", name="Known count").click()
        expect(rows.first).to_contain_text("node-09999")
        expect(page.get_by_role("columnheader", name="Known count")).to_have_attribute("aria-sort", "descending")
        page.get_by_label("Find").fill("node-0420")
        expect(rows).to_have_count(10)
        tab.screenshot("ten-thousand-sites")
        assert page.evaluate("document.querySelectorAll('*').length") < 1500


def test_silent_site_is_shown_with_the_time_of_its_last_frame(tab: Window, server: Server) -> None:
    page = tab.page
    link = WebSocketConnection(Endpoint.parse(server.url), None)
    link.send(next(encode_frames([Hello(VERSION, "<b>sleeper</b>", 1), Join("naps", 0, 5)])))
    until(lambda: server.answer("naps")["estimate"] == 5, "the site has joined")
    page.goto(f"{server.url}/#/counter/naps")
    row = page.get_by_role("row", name="<b>sleeper</b>")
    link.close()
    expect(row).to_contain_text("▲ silent")
    expect(row).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d \(\d+ s\)"))
    expect(page.locator(".badge")).to_have_text("▲Sites missing")
    expect(page.get_by_text("1 site is silent")).to_be_visible()
    expect(page.locator("[data-figure=total]")).to_have_attribute("data-open", "true")  # shown as ≥ 5
    expect(page.locator("[data-figure=total]")).to_contain_text("at least 5")
    expect(page.locator(".chart .doubt")).to_have_attribute("d", re.compile("^M"))
    expect(page.get_by_text("No upper bound: sites are silent")).to_be_visible()
    tab.screenshot("silent-site")


def test_page_shows_a_restart_and_reconnects(tab: Window, server: Server) -> None:
    page = tab.page
    with countless.connect(server.url, site="web-2") as client:
        client.counter("steady").add(7)
        assert client.flush()
        page.goto(f"{server.url}/#/counter/steady")
        expect(page.locator(TOTAL)).to_have_text("7")
        server.kill()
        expect(page.locator("#stale")).to_contain_text(re.compile(r"Not connected since \d\d:\d\d:\d\d"))
        expect(page.locator("#connection")).to_have_text("Not connected")
        expect(page.locator(TOTAL)).to_have_text("7")  # the last answer stays visible, and is not called present
        expect(page.locator(".plot-text")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d: 7, exact$"))
        tab.screenshot("stale")
        server.start()
        client.counter("steady").add(1)
        assert client.flush(TIMEOUT_S)
        expect(page.locator(TOTAL)).to_have_text("8")
        expect(page.locator("#stale")).to_be_hidden()
        expect(page.locator("#connection")).to_have_text("Live")
        expect(page.locator(".chart .restart").last).to_have_attribute("d", re.compile("^M"))
        expect(page.get_by_text("The coordinator started")).to_be_visible()
        page.get_by_role("button", name="All", exact=True).click()
        page.get_by_role("slider", name="Total").press("Home")  # the page still has what was before the restart
        expect(page.locator(".plot-text")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d: [07], exact$"))
    tab.expect_errors("net::ERR_")


def test_connection_without_events_is_shown_as_stale(tab: Window, server: Server) -> None:
    """A cut cable closes no connection: the page must notice by a time-out."""
    page = tab.page
    page.clock.install()
    page.goto(server.url)
    expect(page.locator("#connection")).to_have_text("Live")
    server.process.send_signal(signal.SIGSTOP)
    try:
        page.clock.fast_forward(13_000)
        expect(page.locator("#stale")).to_be_visible()
    finally:
        server.process.send_signal(signal.SIGCONT)
    page.clock.fast_forward(2_000)
    expect(page.locator("#connection")).to_have_text("Live")


def test_names_are_shown_as_text(tab: Window, server: Server) -> None:
    page = tab.page
    page.set_viewport_size({"width": 390, "height": 844})
    for name in HOSTILE:
        server.reader.request("POST", "/api/v1/counters", {"name": name})
        page.goto(f"{server.url}/#/?find={quote(name, safe='')}")
        link = page.locator("table.counters a")
        expect(link).to_have_text(name)
        tab.screenshot(f"hostile-{HOSTILE.index(name)}")
        link.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(page.locator(TOTAL)).to_have_text("0")
        assert tab.overflow() == 0
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
        server.reader.request("DELETE", f"/api/v1/counters/{quote(name, safe='')}")


def test_every_view_fits_every_window_in_light_and_dark(tab: Window, server: Server) -> None:
    page = tab.page
    for name, site_id, landmark in (
        ("list", "#/", "table.counters a"),
        ("fleet", "#/counter/fleet?over=20100", ".plot svg"),
        ("why", "#/why", ".panel svg"),
        ("help", "#/help", ".words"),
    ):
        page.goto(f"{server.url}/{site_id}")
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            for theme, paper in PAPER.items():
                page.emulate_media(color_scheme=theme)
                expect(page.locator(landmark).first).to_be_visible()
                expect(page.locator("body")).to_have_css("background-color", paper)
                assert tab.overflow() == 0
                tab.screenshot(f"{name}-{size}-{theme}")


def test_page_works_with_the_keyboard_alone(tab: Window, server: Server) -> None:
    page = tab.page
    page.goto(server.url)
    expect(page.locator("table.counters tbody tr")).to_have_count(50)
    focused = page.locator(":focus")
    page.keyboard.press("Tab")
    expect(focused).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(focused).to_have_attribute("id", "main")
    page.keyboard.press("Tab")
    expect(focused).to_have_attribute("id", "find")
    page.keyboard.type("fleet")
    expect(page.locator("table.counters tbody tr")).to_have_count(1)
    expect(focused).to_have_attribute("id", "find")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(focused).to_have_text("fleet")
    page.keyboard.press("Enter")
    expect(focused).to_have_text("fleet")  # the heading of the counter's view
    assert focused.evaluate("node => node.tagName") == "H1"
    expect(page.get_by_role("slider", name="Increase")).to_be_visible()
    for text in ("Minutes", "Hours", "Days"):
        page.keyboard.press("Tab")
        expect(focused).to_have_text(text)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Per day")).to_be_visible()
    expect(focused).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Tab")
    expect(focused).to_have_attribute("role", "slider")
    page.keyboard.press("ArrowLeft")
    expect(focused).to_have_attribute("aria-valuetext", re.compile("^Today: unknown before .*; .* since, ends at"))
    for text in ("As a table", "Close up", "5 minutes"):
        page.keyboard.press("Tab")
        expect(focused).to_have_text(text)
    page.keyboard.press("Enter")
    expect(focused).to_have_attribute("aria-pressed", "true")
    assert focused.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
    for _ in ("1 hour", "All", "the chart"):
        page.keyboard.press("Tab")
    expect(focused).to_have_attribute("aria-label", "Total")
    expect(focused).to_have_attribute("aria-valuetext", re.compile(r"^Now: at least 20,100, sites missing$"))


def test_screen_reader_gets_roles_names_and_announcements(tab: Window, server: Server) -> None:
    page = tab.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{server.url}/#/counter/fleet")
    expect(page.locator("#announcement")).to_have_text(re.compile("20,100, sites missing"))
    for role, name in (
        ("banner", ""),
        ("main", ""),
        ("navigation", "Main"),
        ("table", "Sites"),
        ("figure", "Increase over time"),
        ("slider", "Increase"),
        ("figure", "Total over time"),
        ("slider", "Total"),
        ("list", "Key"),
    ):
        expect(page.get_by_role(role, name=name).first).to_be_visible()  # type: ignore[arg-type]
    row = page.get_by_role("table", name="Sites").get_by_role("row").nth(1)
    expect(row.get_by_role("rowheader")).to_contain_text("node-")
    expect(row.get_by_role("cell").first).to_contain_text("silent")


def test_attack_is_played_paused_and_sought(tab: Window, server: Server) -> None:
    page = tab.page
    page.goto(f"{server.url}/#/why")
    expect(page.get_by_role("heading", level=1)).to_have_text("Why trust this?")
    old, ours = (page.get_by_role("region", name=name) for name in ("the classical tracker", "Countless"))
    expect(page.get_by_role("button", name="Pause")).to_be_visible()  # it starts by itself
    page.get_by_role("button", name="Pause").click()
    slider = page.get_by_role("slider", name="Moment of the match")
    slider.fill("0")
    expect(old).to_contain_text("Inside its band")
    slider.press("End")
    expect(page.get_by_text("400,000 of 400,000 events")).to_be_visible()
    recorded = json.loads((FOLDER / "attack.json").read_text())["contestants"][0]
    expect(old).to_contain_text(f"Left its band at event {recorded['left_at']:,}. Worst: {recorded['worst']:.1f}")
    expect(ours).to_contain_text("Inside its band")
    page.get_by_role("button", name="Again").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_first_view_needs_few_requests_and_few_bytes(tab: Window, server: Server) -> None:
    """`python -m bench page` measures how long it takes on a slow connection."""
    page, loaded = tab.page, []
    page.on("requestfinished", lambda request: loaded.append(request.sizes()["responseBodySize"]))
    page.goto(f"{server.url}/#/counter/fleet")
    expect(page.locator(".chart .line")).to_have_attribute("d", re.compile("^M"))
    assert len(loaded) <= 4  # the document, the style sheet, the script, the icon; and the feed, which does not end
    assert sum(loaded) < 60_000, loaded


def test_chart_reads_out_restarts_and_when_a_threshold_was_passed(tab: Window, server: Server) -> None:
    """An hour: from 0 to 3,600 within 1%, degraded in its last ten minutes; the coordinator was started in between."""
    page, now = tab.page, 1_800_000_000
    rows = []
    for second in range(0, 3601, 60):
        state = "holding" if second <= 3000 else "degraded"
        rows.append([now - 3600 + second, second, second / 1.01, second / 0.99, state])
    stream = (
        event("hello", role="public", now=now, keepalive_s=4, version="1.2.3", started=now - 1800)
        + event("history", points=rows)
        + event("answer", now=now, estimate=3600, lower=3564, upper=3637, state="degraded")
    )
    page.route(re.compile(r"/page/feed\?"), lambda route: route.fulfill(content_type="text/event-stream", body=stream))
    page.clock.install(time=now)
    page.goto(f"{server.url}/#/counter/hits?over=1790")
    moment, verdict = written(page, now - 1800), page.locator(".verdict-text")
    expect(verdict).to_have_text(f"possibly over since {moment}, certainly over since {written(page, now - 1740)}.")
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.locator(".chart .restart")).to_have_count(1)
    expect(page.locator(".threshold-mark")).to_have_count(2)
    expect(page.locator(".chart .doubt")).to_have_attribute("d", re.compile("^M"))
    page.mouse.move(1, 1)
    chart = page.get_by_role("slider", name="Total")
    chart.press("Home")
    expect(page.locator(".plot-text")).to_have_text(re.compile(r": 0 \("))
    for _ in range(30):
        chart.press("ArrowRight")
    expect(page.locator(".plot-text")).to_have_text(f"{moment}: 1,800 (1,783 to 1,818), within ±1%")
    box = page.locator(".plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 50)
    expect(page.locator(".plot-text")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d: at least 3,\d\d\d, sites missing$"))
    page.get_by_label("Threshold").fill("1M")
    expect(verdict).to_have_text("not reached.")
    expect(page).to_have_url(re.compile("over=1M"))


def written(page: Page, seconds: int) -> str:
    """As the browser writes this time."""
    text: str = page.evaluate("(seconds) => new Date(seconds * 1000).toLocaleTimeString('en-GB')", seconds)
    return text
