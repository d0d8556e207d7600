"""Makes docs/images/page.png: a coordinator, a hundred sites that count by hours, and a screenshot of the page.

    python docs/images/make.py

Needs chromium and what `make setup` installs. Takes six minutes: the rate is over the last five. In the first minutes
of an hour the last bar is small.
"""

import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from math import cos, pi
from pathlib import Path
from threading import Event, Thread
from time import time

from playwright.sync_api import expect, sync_playwright

import countless
from countless.core.periods.window import FLOOR_SHARE, WindowRule
from countless.server.kinds.counter import CounterFields
from countless.server.sessions.periodic import PeriodicFields, WindowFields
from countless.server.settings import STATE_FILE, Config
from countless.server.storage.rows import Changes, Rows, alone
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.keys import ALL, COUNTER, Key

OUT = Path(__file__).with_name("page.png")
SITES, SECONDS, HOUR_S, ALPHA = 100, 330, 3600, 0.008
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


def past_hours(directory: Path, now: float) -> None:
    """Two days of hours, busy by day and quiet by night, and the part of this hour that is over."""
    rng, present = random.Random(5), int(now // HOUR_S)  # noqa: S311  # only has to look natural
    config = Config(alpha=ALPHA)
    totals = {period: int(hourly(period) * rng.uniform(0.94, 1.06)) for period in range(present - 47, present)}
    counted, windows = int(hourly(present) * (now % HOUR_S) / HOUR_S), Key(COUNTER, "requests", "hour", ALL)
    fields = PeriodicFields(present - 47, 0, sum(totals.values()) + counted)
    rows: Rows = {
        windows: {"spec": alone(replace(config, windows=WindowRule("hour"))), "windows": alone(fields)},
        windows.window(present): {
            "spec": alone(config),
            "state": alone(CounterFields(1, counted, counted, totals[present - 1] // FLOOR_SHARE)),
            "window": alone(WindowFields(None)),
        },
    }
    rows |= {windows.window(period): {"window": alone(WindowFields(total))} for period, total in totals.items()}
    store = SqliteStore(directory / STATE_FILE)
    store.save(Changes(rows))
    store.close()


def hourly(period: int) -> float:
    return 4e6 - 2.2e6 * cos((period % 24 - 3) / 12 * pi)


def count(clients: list[countless.Client], done: Event) -> None:
    """A few sites are busy, most are not."""
    rng = random.Random(7)  # noqa: S311
    weights = [rng.paretovariate(1.3) for _ in clients]
    per_second = hourly(int(time() // HOUR_S)) / HOUR_S / sum(weights)
    last = time()
    while not done.wait(0.1):
        now = time()
        for client, weight in zip(clients, weights, strict=True):
            client.counter("requests", per="hour").add(int(per_second * weight * (now - last) + rng.random()))
        last = now


def picture(url: str) -> None:
    """The counter's page, as an operator sees it."""
    chromium = shutil.which("chromium") or sys.exit("make.py needs chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1100, "height": 856}, color_scheme="light", reduced_motion="reduce")
        page.goto(f"{url}/#/counter/requests")
        expect(page.locator(".bars-plot .box").first).to_be_visible(timeout=60_000)
        page.wait_for_timeout(3_000)
        page.screenshot(path=OUT)
        browser.close()


def main() -> None:
    """Serve, count, look."""
    command = [sys.executable, "-m", "countless.cli.main", "serve", "--open", "--port", "0"]
    command += ["--silent-after", "60s", "--state-dir"]
    with tempfile.TemporaryDirectory() as directory:
        past_hours(Path(directory), time())
        server = subprocess.Popen([*command, directory], stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert server.stdout is not None  # noqa: S101
        url = server.stdout.readline().split()[-1]
        clients = [countless.connect(url, site=f"web-{number:03}") for number in range(SITES)]
        done = Event()
        traffic = Thread(target=count, args=(clients, done))
        traffic.start()
        try:
            done.wait(SECONDS)
            picture(url)
        finally:
            done.set()
            traffic.join()
            for client in clients:
                client.close(5)
            server.terminate()
            server.wait()
    print(f"{OUT}: {OUT.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
