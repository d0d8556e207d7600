"""The page does not grow while it is open. Its traffic is replayed through the page's own feed reader."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, CDPSession, Route, expect

from support.browser import event, hello, window
from support.service import Server

pytestmark = pytest.mark.slow

START = 1_800_000_000
ANSWERS_PER_SECOND = 3


def total(second: int) -> int:
    return 1_000_000 + second * 997


def span(count: int) -> dict[str, float]:
    return {"lower": count * 0.9, "estimate": count, "upper": count * 1.1}


def connection(number: int, seconds: int) -> Iterator[str]:
    """What a coordinator sends on one connection. The page then reconnects for the next."""
    yield hello("operator", START + seconds * number)
    if not number:
        yield event("history", points=[])
    for second in range(seconds * number, seconds * (number + 1)):
        now, estimate = START + second, total(second)
        state = "holding" if second % 600 else "degraded"
        for part in range(ANSWERS_PER_SECOND):
            moment, lower, upper = now + part / ANSWERS_PER_SECOND, estimate / 1.01, estimate / 0.99
            yield event("answer", now=moment, estimate=estimate, lower=lower, upper=upper, state=state)
        yield event("marks", marks=[[now, second // 60, second % 60]])
        figures = [{"name": name, "since": None, **span(estimate)} for name in ("this-hour", "today")]
        yield event("spans", now=now, tz="UTC", rate={"over": 60, **span(997 + second % 9)}, spans=figures)
        start = now // 60 * 60
        bar = [start, start + 60, *span(997 * (second % 60)).values(), "open", None, 0, 0]
        shown = {"tz": "UTC", "per": "minute", "choices": ["minute", "hour"], "first": start - 9 * 60}
        yield event("bars", now=now, **shown, rows=[bar])
        if second % 5:
            continue
        rows = [[f"site-{n}-{second % 7}", "connected", now, estimate // 50, 0.02] for n in range(50)]
        yield event("sites", all=10_000, found=10_000, start=0, rows=rows, left={"known": second, "share": 0.1})


def used(session: CDPSession) -> tuple[int, int]:
    """Bytes of the heap and nodes of the document, after a garbage collection."""
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"], session.send("Memory.getDOMCounters")["nodes"]


@pytest.mark.soak
@pytest.mark.parametrize("seconds", [60, 600])
def test_open_page_does_not_grow(chromium: Browser, server: Server, seconds: int) -> None:
    """Six connections: six minutes of traffic, or an hour."""
    connections, served, allowed = 6, 0, 1

    def answer(route: Route) -> None:
        nonlocal served
        body = "".join(connection(served, seconds)) if served < allowed else ""
        served += bool(body)
        route.fulfill(body=body, content_type="text/event-stream")

    with window(chromium) as tab:
        page, sizes = tab.page, []
        page.route(re.compile(r"/page/feed\?"), answer)
        page.clock.install()
        session = page.context.new_cdp_session(page)
        session.send("HeapProfiler.enable")
        page.goto(f"{server.url}/#/counter/busy")
        expect(page.locator(".chart .line")).to_have_attribute("d", re.compile("^M"))
        page.get_by_text("As a table").click()
        for allowed in range(1, connections + 1):
            for _ in range(60):  # seconds for the page to reconnect
                if served < allowed:
                    page.clock.run_for(1_000)
            expect(page.locator("[data-figure=total] .value")).to_have_text(f"{total(seconds * allowed - 1):,}")
            page.clock.run_for(8_000)  # time to draw
            if allowed in (connections // 3, connections):
                sizes.append(used(session))
        page.get_by_role("button", name="All", exact=True).click()
        page.clock.run_for(1_000)
        line = page.locator(".chart .line").get_attribute("d") or ""
        rounds = page.locator(".chart .rounds").get_attribute("d") or ""
    assert 100 < line.count("V") <= 321, line.count("V")  # answers: as many as a history holds, and one for now
    assert 5 <= rounds.count("M") <= 320, rounds.count("M")
    (heap, nodes), (heap_after, nodes_after) = sizes
    assert heap_after < heap + 3_000_000, sizes
    assert nodes_after < nodes + 500, sizes
