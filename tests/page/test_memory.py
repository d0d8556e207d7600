"""The page left open for an hour of traffic: it must not grow. The hour is played through the page's own reader."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import CDPSession, Route, expect

from support.browser import browser, window
from support.service import Server

pytestmark = pytest.mark.slow

START = 1_800_000_000
PIECE, PIECES = 600, 6  # seconds
ANSWERS = 3  # in a second


def event(name: str, **data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def total(second: int) -> int:
    return 1_000_000 + second * 997


def piece(number: int) -> Iterator[str]:
    """What a coordinator says in ten minutes. Then the connection breaks: the page comes back for the next piece."""
    yield event("hello", face="operator", now=START + PIECE * number, beat=4)
    if not number:
        yield event("history", points=[])
    for second in range(PIECE * number, PIECE * (number + 1)):
        now, estimate = START + second, total(second)
        state = "holding" if second % 600 else "degraded"
        for part in range(ANSWERS):
            moment, lower, upper = now + part / ANSWERS, estimate / 1.01, estimate / 0.99
            yield event("answer", now=moment, estimate=estimate, lower=lower, upper=upper, state=state)
        yield event("marks", marks=[[now, second // 60, second % 60]])
        if second % 5:
            continue
        rows = [[f"site-{n}-{second % 7}", "connected", now, estimate // 50, 0.02] for n in range(50)]
        yield event("sites", all=10_000, found=10_000, start=0, rows=rows, left={"known": second, "share": 0.1})


def used(session: CDPSession) -> tuple[int, int]:
    """Bytes of the heap and nodes of the document, after the garbage is out."""
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"], session.send("Memory.getDOMCounters")["nodes"]


def test_an_hour_does_not_make_it_grow(tmp_path: Path) -> None:
    served, allowed = 0, 1

    def answer(route: Route) -> None:
        nonlocal served
        body = "".join(piece(served)) if served < allowed else ""
        served += bool(body)
        route.fulfill(body=body, content_type="text/event-stream")

    with Server(tmp_path) as server, browser() as chromium, window(chromium) as tab:
        page, sizes = tab.page, []
        page.route(re.compile(r"/page/feed\?"), answer)
        page.clock.install()
        session = page.context.new_cdp_session(page)
        session.send("HeapProfiler.enable")
        page.goto(f"{server.url}/#/counter/busy")
        expect(page.locator(".plot .main-svg").first).to_be_visible()
        for allowed in range(1, PIECES + 1):
            while served < allowed:
                page.clock.run_for(1_000)  # time for the connection to come back
            expect(page).to_have_title(f"{total(PIECE * allowed - 1):,} busy – Countless")
            page.clock.run_for(8_000)  # time for some charts
            if allowed in (PIECES // 3, PIECES):
                sizes.append(used(session))
        page.get_by_role("button", name="All", exact=True).click()
        page.clock.run_for(1_000)
        drawn = page.evaluate("document.querySelector('.plot').data.map((trace) => trace.x.length)")
    assert 100 < drawn[-1] <= 321, drawn  # the answers: of ten thousand, as many as a history holds, and one for now
    assert max(drawn) <= 3 * 320, drawn  # rounds and phases: two ends and a gap for each
    (heap, nodes), (heap_after, nodes_after) = sizes
    # With the state of the chart it goes up and down by a megabyte or two.
    assert heap_after < heap + 3_000_000, sizes
    assert nodes_after < nodes + 500, sizes
