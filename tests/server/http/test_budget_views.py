"""What an open page shows of budgets."""

import re

import pytest

from countless.core.budget.messages import Ask, BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import BudgetState
from countless.errors import InvalidParameter
from countless.server.http.page.assets import FOLDER
from countless.server.http.page.budget_views import BudgetListView, BudgetView, OperatorBudgetView
from support.site_server import site_server


def test_page_knows_every_state_of_a_budget() -> None:
    text = (FOLDER / "format.js").read_text().partition("BUDGET_STATES = {")[2]
    assert re.findall(r"^  (\w+): \{ word:", text, re.MULTILINE) == list(BudgetState)


def ask(name: str, want: int, *, seq: int = 1, spent: int = 0, limit: int = 0, round: int = 0) -> Ask:
    return Ask(BudgetId(name), round, seq, spent, 0, limit, want)


async def test_list_is_searched_sorted_and_sent_when_it_has_changed() -> None:
    async with site_server() as harness:
        for name in ("b", "a/*", "c"):
            harness.server.budgets.create(name, BudgetRule(10, slack=0))
        web = await harness.connect("web")
        await harness.send(*web, ask("b", 4), ask("a/x", 9))
        view = BudgetListView(harness.server, "", "-used", 0)
        [(kind, data)] = view.changes()
        assert kind == "budgets"
        assert [(row["budget"], row["upper"], row["names"]) for row in data["rows"]] == [
            *(("a/x", 9, None), ("b", 4, None), ("c", 0, None), ("a/*", 0, 1)),
        ]
        assert list(view.changes()) == []
        await harness.send(*web, ask("c", 1))
        assert len(list(view.changes())) == 1
        [(_, found)] = BudgetListView(harness.server, "A/", "", 1).changes()
        assert ([row["budget"] for row in found["rows"]], found["found"], found["all"]) == (["a/x"], 2, 4)
        assert (found["found_templates"], found["all_templates"]) == (1, 1)
        with pytest.raises(InvalidParameter, match="sort must be one of: name, used"):
            BudgetListView(harness.server, "", "magic", 0)


async def test_budget_shows_what_is_refused_and_why() -> None:
    async with site_server() as harness:
        harness.server.budgets.create("tokens", BudgetRule(10, slack=0.1))
        web, other = await harness.connect("web"), await harness.connect("other")
        await harness.send(*web, ask("tokens", 9))
        view = BudgetView(harness.server, "tokens")
        [(_, shown)] = view.changes()
        assert (shown["lower"], shown["upper"], shown["refused_from"]) == (0, 9, None)
        await harness.send(*other, ask("tokens", 3))
        await harness.send(*web, ask("tokens", 0, seq=2, spent=9, limit=9, round=1))
        [(_, shown)] = view.changes()
        assert (shown["lower"], shown["state"], shown["refused_from"]) == (9, "exhausted", 2)
        events = dict(OperatorBudgetView(harness.server, "tokens").changes())
        assert events["holders"]["rows"] == [["web", "connected", 9, 0, 0, None], ["other", "connected", 0, 0, 0, 2]]
        harness.server.on_disconnect(*web)
        harness.server.drop_site("web")
        events = dict(OperatorBudgetView(harness.server, "tokens").changes())
        assert events["holders"]["rows"][0][:2] == ["web", "gone"]


async def test_budget_that_does_not_exist_is_shown_as_soon_as_it_does() -> None:
    async with site_server() as harness:
        view = OperatorBudgetView(harness.server, "later")
        assert [kind for kind, _ in view.changes()] == ["no-budget"]
        assert list(view.changes()) == []
        harness.server.budgets.create("later", BudgetRule(10))
        assert [kind for kind, _ in view.changes()] == ["budget", "holders"]
        harness.server.budgets.delete("later")
        assert [kind for kind, _ in view.changes()] == ["no-budget"]
