"""What an open page shows of budgets."""

import re

import pytest

from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import BudgetState
from countless.errors import InvalidParameter
from countless.server.http.page.assets import FOLDER
from countless.server.http.page.budget_views import BudgetListView, BudgetView, OperatorBudgetView
from support.site_server import site_server
from support.spender import Spender, first_ask


def test_page_knows_every_state_of_a_budget() -> None:
    text = (FOLDER / "format.js").read_text().partition("BUDGET_STATES = {")[2]
    assert re.findall(r"^  (\w+): \{ word:", text, re.MULTILINE) == list(BudgetState)


async def test_list_is_searched_sorted_and_sent_when_it_has_changed() -> None:
    async with site_server() as harness:
        for name in ("b", "a/*", "c"):
            harness.server.budgets.create(name, BudgetRule(10, slack=0))
        web = await harness.connect("web")
        await harness.send(*web, first_ask("b", 4), first_ask("a/x", 9))
        view = BudgetListView(harness.server, "", "-used", 0)
        [(kind, data)] = view.changes()
        assert kind == "budgets"
        assert [(row["budget"], row["upper"], row["names"]) for row in data["rows"]] == [
            *(("a/x", 9, None), ("b", 4, None), ("c", 0, None), ("a/*", 0, 1)),
        ]
        assert list(view.changes()) == []
        await harness.send(*web, first_ask("c", 1))
        assert len(list(view.changes())) == 1
        [(_, found)] = BudgetListView(harness.server, "A/", "", 1).changes()
        assert ([row["budget"] for row in found["rows"]], found["found"], found["all"]) == (["a/x"], 2, 4)
        assert (found["found_templates"], found["all_templates"]) == (1, 1)
        with pytest.raises(InvalidParameter, match="sort must be one of: name, used"):
            BudgetListView(harness.server, "", "magic", 0)


async def test_budget_shows_what_is_refused_and_why() -> None:
    async with site_server() as harness:
        harness.server.budgets.create("tokens", BudgetRule(10, slack=0.1))
        web, other = await Spender(harness, "web").connect(), await Spender(harness, "other").connect()
        assert [await web.take(1), await web.take(1), await web.take(4)] == 3 * ["allowed"]
        view = BudgetView(harness.server, "tokens")
        [(_, shown)] = view.changes()
        assert (shown["lower"], shown["upper"], shown["refused_from"]) == (2, 6, None)
        assert [await web.take(3), await other.take(3)] == ["allowed", "exhausted"]
        [(_, shown)] = view.changes()
        assert (shown["lower"], shown["state"], shown["refused_from"]) == (6, "exhausted", 2)
        events = dict(OperatorBudgetView(harness.server, "tokens").changes())
        assert events["holders"]["rows"] == [
            *(["web", "connected", 6, 0, 3, False, None], ["other", "connected", 0, 0, 0, False, 2]),
        ]
        web.disconnect()
        harness.server.drop_site("web")
        events = dict(OperatorBudgetView(harness.server, "tokens").changes())
        assert events["holders"]["rows"][0][:2] == ["web", "gone"]


async def test_room_that_a_site_was_lent_is_shown_and_what_a_rolling_one_has_handed_over_is_not_its_own() -> None:
    async with site_server() as harness:
        for name, rolling in (("tokens", None), ("logins", 60.0)):
            harness.server.budgets.create(name, BudgetRule(10, slack=0, rolling=rolling))
        web = await Spender(harness, "web").connect()
        await web.take(1)
        view = OperatorBudgetView(harness.server, "tokens")
        assert dict(view.changes())["holders"]["rows"] == [["web", "connected", 0, 0, 3, True, None]]
        logins = BudgetId("logins")
        site = await Spender(harness, "site", rolling=60.0).connect()
        assert [await site.take(4, logins), await site.take(5, logins)] == 2 * ["allowed"]
        view = OperatorBudgetView(harness.server, "logins")
        assert dict(view.changes())["holders"]["rows"] == [["site", "connected", 0, 0, 5, False, None]]
        assert dict(BudgetView(harness.server, "logins").changes())["budget"]["upper"] == 9


async def test_budget_that_does_not_exist_is_shown_as_soon_as_it_does() -> None:
    async with site_server() as harness:
        view = OperatorBudgetView(harness.server, "later")
        assert [kind for kind, _ in view.changes()] == ["no-budget"]
        assert list(view.changes()) == []
        harness.server.budgets.create("later", BudgetRule(10))
        assert [kind for kind, _ in view.changes()] == ["budget", "holders"]
        harness.server.budgets.delete("later")
        assert [kind for kind, _ in view.changes()] == ["no-budget"]
