"""How soon the page shows something on a slow connection: 1.6 Mbit/s and 150 ms for each round trip, nothing cached.

The best of several loads: the connection is what is measured, not what else the machine does.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.tables import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the browser and the coordinator of the tests

SLOW = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 93_750}
VIEWS = {"all counters": ("#/", "table.counters a"), "one counter": ("#/counter/fleet", ".chart .line[d^=M]")}
LOADS = 5
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> Iterator[Table]:
    from support.browser import browser
    from support.page_state import populate
    from support.service import Server

    rows = []
    with tempfile.TemporaryDirectory() as directory:
        populate(Path(directory), sites=1000)
        with Server(Path(directory), "--silent-after", "1s") as server, browser() as chromium:
            for name, (path, mark) in VIEWS.items():
                loads = [load(chromium, f"{server.url}/{path}", mark) for _ in range(LOADS)]
                files, *numbers = zip(*loads, strict=True)  # the icon may come later than the answers
                rows.append([name, str(max(files)), *(f"{min(column):.0f}" for column in numbers)])
    yield Table("page-first-paint", ["view", "files", "kB", "first paint, ms", "first answers, ms"], rows)


def load(chromium: Any, url: str, landmark: str) -> tuple[int, float, float, float]:
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
    return len(sizes), sum(sizes) / 1000, painted, answered
