"""Makes docs/images/page.png: a coordinator, a hundred sites that count for a while, and a screenshot of the page.

    python docs/images/make.py

Needs chromium and what `make setup` installs. Takes about a minute.
"""

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Event, Thread

from playwright.sync_api import expect, sync_playwright

import countless

OUT = Path(__file__).with_name("page.png")
SITES, SECONDS = 100, 45
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


def count(clients: list[countless.Client], done: Event) -> None:
    """A few sites are busy, most are not, and traffic grows."""
    rng = random.Random(7)  # noqa: S311  # only has to look natural
    weights = [rng.paretovariate(1.3) for _ in clients]
    seconds = 0.0
    while not done.wait(0.1):
        seconds += 0.1
        for client, weight in zip(clients, weights, strict=True):
            client.counter("requests").add(int(1 + weight * 30 * rng.random() * (1 + seconds / 20)))


def picture(url: str) -> None:
    """The counter's page, as an operator sees it."""
    chromium = shutil.which("chromium") or sys.exit("make.py needs chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1100, "height": 856}, color_scheme="light", reduced_motion="reduce")
        page.goto(f"{url}/#/counter/requests")
        expect(page.locator(".plot .main-svg").first).to_be_visible(timeout=60_000)
        page.wait_for_timeout(3_000)
        page.screenshot(path=OUT)
        browser.close()


def main() -> None:
    """Serve, count, look."""
    command = [sys.executable, "-m", "countless.cli.main", "serve", "--port", "0", "--alpha", "0.02"]
    command += ["--silent-after", "60s", "--state-dir"]
    with tempfile.TemporaryDirectory() as directory:
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
