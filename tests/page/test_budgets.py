"""Budgets on the page, in a real browser, on a real coordinator whose budgets real clients spend."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import countless
from support.browser import SIZES, Window
from support.service import TIMEOUT_S, Server, python, until

pytestmark = pytest.mark.slow

LOST = "import countless; print(countless.connect(site='lost').budget('acme/tokens').take(100, wait=90)); input()"


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """Without budgets before and after a test."""
    yield shared
    for budget in list(shared.reader.budgets()):
        if budget["template"] is None:
            shared.reader.request("DELETE", f"/api/v1/budgets/{budget['name']}")


def create(server: Server, name: str, limit: int, **rule: object) -> None:
    server.reader.request("POST", "/api/v1/budgets", {"name": name, "limit": limit, "slack": 0.0, **rule})


def test_page_without_budgets_says_how_to_create_one(tab: Window, server: Server) -> None:
    tab.page.goto(server.url)
    tab.page.get_by_role("link", name="Budgets").click()
    expect(tab.page.get_by_text("There are no budgets yet")).to_be_visible()
    create(server, "tokens", 10)
    expect(tab.page.get_by_role("link", name="tokens")).to_be_visible()


def test_bar_fills_with_what_is_spent_and_granted_until_requests_are_refused(tab: Window, server: Server) -> None:
    page = tab.page
    create(server, "acme/tokens", 1000)
    page.goto(f"{server.url}/#/budget/acme%2Ftokens")
    expect(page.get_by_text("No site has asked for it in this period.")).to_be_visible()
    with countless.connect(server.url, site="web-1") as one, countless.connect(server.url, site="web-2") as two:
        assert one.budget("acme/tokens").take(300, wait=TIMEOUT_S)
        hold = two.budget("acme/tokens").reserve(200, wait=TIMEOUT_S)
        expect(page.locator(".hero")).to_have_text("0 – 500")
        assert one.budget("acme/tokens").take(100, wait=TIMEOUT_S)  # it reports what it spent before
        bar = page.locator(".usage")
        expect(bar).to_have_attribute("aria-label", re.compile("300 spent, .* granted, .* free of 1,000"))
        expect(page.get_by_role("row", name="web-2")).to_contain_text("connected")
        expect(page.locator(".badge")).to_have_text("●Open")
        tab.screenshot("budget-open")
        assert not one.budget("acme/tokens").take(401, wait=TIMEOUT_S)
        assert one.budget("acme/tokens").take(400, wait=TIMEOUT_S)
        assert not two.budget("acme/tokens").take(1, wait=TIMEOUT_S)
        expect(page.locator(".badge")).to_have_text("■Exhausted")
        expect(page.get_by_text("Requests of 1 unit or more are refused.")).to_be_visible()
        expect(page.get_by_role("row", name="web-2")).to_contain_text("1 or more")
        expect(page.get_by_role("row", name="web-2").locator(".held")).to_have_text("200")
        tab.screenshot("budget-exhausted")
        hold.settle(50)
        expect(page.locator(".badge")).to_have_text("●Open")
    server.reader.request("DELETE", "/api/v1/budgets/acme/tokens")
    expect(page.get_by_text("There is no budget acme/tokens")).to_be_visible()


def test_page_shows_which_sites_are_lent_room_and_which_ask_each_time(tab: Window, server: Server) -> None:
    create(server, "acme/tokens", 1000)
    tab.page.goto(f"{server.url}/#/budget/acme%2Ftokens")
    with countless.connect(server.url, site="web-1") as one, countless.connect(server.url, site="web-2") as two:
        assert one.budget("acme/tokens").take(wait=TIMEOUT_S)
        expect(tab.page.get_by_role("row", name="web-1").locator(".lent")).to_have_text("lent")
        assert two.budget("acme/tokens").take(950, wait=TIMEOUT_S)  # so web-1 returns its room
        for site in ("web-1", "web-2"):
            expect(tab.page.get_by_role("row", name=site).locator(".lent")).to_have_text("asks each time")
        tab.screenshot("budget-lent")


def test_leaked_units_of_a_killed_site_are_shown(tab: Window, server: Server) -> None:
    create(server, "acme/tokens", 400)
    with python(LOST, server.url) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    until(lambda: server.reader.request("DELETE", "/api/v1/sites/lost")["forgotten"], "the loss of the connection")
    tab.page.goto(f"{server.url}/#/budget/acme%2Ftokens")
    expect(tab.page.get_by_role("row", name="lost")).to_contain_text("ended without a report")
    expect(tab.page.locator(".legend .leaked dd")).not_to_have_text("0 (0%)")
    tab.screenshot("budget-leaked")


def test_budgets_are_searched_sorted_and_linked_and_templates_count_their_names(tab: Window, server: Server) -> None:
    page = tab.page
    create(server, "keys/*", 10, per="month", max_names=500)
    create(server, "acme/tokens", 1_000_000, per="day")
    with countless.connect(server.url, site="web-1") as client:
        for number in range(3):
            for _ in range(4 * number):
                assert client.budget(f"keys/{number}").take(wait=TIMEOUT_S)
        page.goto(f"{server.url}/#/budgets")
        rows = page.locator("table.budgets tbody tr")
        expect(rows).to_have_count(4)
        expect(page.locator(".pager")).to_contain_text("3 budgets, 1 template")
        expect(page.get_by_role("row", name="keys/*")).to_contain_text("2 of 500 names in use")
        expect(page.get_by_role("row", name="acme/tokens")).to_contain_text("0 of 1M")
        expect(page.get_by_role("row", name="acme/tokens")).to_contain_text(re.compile(r"in \d+ (h|min|s)"))
        page.get_by_label("Sort").select_option("Fullest first")
        expect(rows.first).to_contain_text("keys/2")
        tab.screenshot("budgets")
        page.get_by_role("link", name="keys/*").click()
        expect(page.get_by_text("10 per month for each name that begins with keys/.")).to_be_visible()
        page.get_by_role("link", name="2 names of at most 500 in use").click()
        expect(rows).to_have_count(3)
        page.get_by_role("link", name="keys/1").click()
        expect(page.get_by_text("by the rule of keys/*")).to_be_visible()
        expect(page.get_by_text(re.compile(r"Resets at .* UTC, in \d+ (days|h|min|s)"))).to_be_visible()


def test_limit_on_what_runs_at_the_same_time_is_in_use_and_not_spent(tab: Window, server: Server) -> None:
    create(server, "exports", 3, kind="in_flight")
    tab.page.goto(f"{server.url}/#/budgets")
    expect(tab.page.get_by_role("row", name="exports")).to_contain_text("0 of 3 in use")
    tab.page.get_by_role("link", name="exports").click()
    expect(tab.page.get_by_text("of 3 in use", exact=True)).to_be_visible()


def test_views_of_budgets_fit_every_window(tab: Window, server: Server) -> None:
    page = tab.page
    create(server, "acme/" + "a" * 100, 2**62)
    create(server, "tokens", 1000, per="month", tz="Europe/Berlin")
    with countless.connect(server.url, site="web-" + "1" * 50) as client:
        assert client.budget("tokens").take(300, wait=TIMEOUT_S)
        for name, path, landmark in (
            ("budgets", "#/budgets", "table.budgets a"),
            ("budget", "#/budget/tokens", "table.holders .name"),
        ):
            page.goto(f"{server.url}/{path}")
            for size, (width, height) in SIZES.items():
                page.set_viewport_size({"width": width, "height": height})
                for theme in ("light", "dark"):
                    page.emulate_media(color_scheme=theme)
                    expect(page.locator(landmark).first).to_be_visible()
                    assert tab.overflow() == 0
                    tab.screenshot(f"{name}-{size}-{theme}")
