"""How soon the page shows something on a slow connection: 1.6 Mbit/s and 150 ms for each round trip, nothing cached."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.tables import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the browser and the coordinator of the tests

SLOW = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 93_750}
VIEWS = {"all counters": ("#/", "table.counters a"), "one counter": ("#/counter/fleet", ".chart .line[d^=M]")}
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> Iterator[Table]:
    from support.browser import browser
    from support.page_state import populate
    from support.service import Server

    with tempfile.TemporaryDirectory() as directory:
        populate(Path(directory), sites=1000)
        with Server(Path(directory), "--silent-after", "1s") as server, browser() as chromium:
            rows = [[name, *load(chromium, f"{server.url}/{path}", mark)] for name, (path, mark) in VIEWS.items()]
    yield Table("page-first-paint", ["view", "files", "kB", "first paint, ms", "first answers, ms"], rows)


def load(chromium: Any, url: str, landmark: str) -> list[str]:
    from support.browser import window

    sizes: list[int] = []
    with window(chromium) as tab:
        page = tab.page
        page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Network.emulateNetworkConditions", SLOW)
        page.goto(url)
        page.locator(landmark).first.wait_for(state="attached")
        answered, painted = page.evaluate("performance.now()"), page.evaluate(PAINT)
    return [str(len(sizes)), f"{sum(sizes) / 1000:.0f}", f"{painted:.0f}", f"{answered:.0f}"]
