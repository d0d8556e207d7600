"""The budgets on an open page: all of them, or one. Operators also see which sites hold it.

Nothing of a budget is secret, but the names of sites are for operators, as everywhere.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from time import time
from typing import Any

from countless.core.budget.state import BudgetState
from countless.server.http.budgets.schemas import BudgetReader, budgets_of
from countless.server.http.page.counter_view import LIST_INTERVAL_S, ROWS_PER_PAGE, Event, require_sort
from countless.server.http.server_view import ServerView
from countless.wire.keys import is_template

BUDGET_SORTS = ("name", "used")


def budget_row(budget: BudgetReader, names: Tally[str]) -> dict[str, Any]:
    """`names`: how many names follow each template."""
    limit, lower, upper, leaked, state = budget.usage
    window, rule = budget.window, budget.rule
    if rule.rolling is not None:  # units that come back are never certain; those of the last reports are worth a bar
        lower = min(upper, lower + budget.held)
    return {
        "budget": budget.name,
        "limit": limit,
        "lower": lower,
        "upper": upper,
        "leaked": leaked,
        "state": state,
        "per": rule.per,
        "kind": rule.kind,
        "rolling": rule.rolling,
        "resets_at": None if window is None else window[1],
        "max_names": rule.max_names,
        "names": names[budget.name] if rule.max_names is not None else None,
    }


class BudgetListView:
    def __init__(self, server: ServerView, find: str, sort: str, start: int) -> None:
        self._server = server
        self._find = find.casefold()
        self._sort = require_sort(sort, BUDGET_SORTS, "name")
        self._start = start
        self._last: dict[str, Any] | None = None

    def changes(self) -> Iterator[Event]:
        """`budgets`: the whole page, whenever something in it has changed."""
        by_name, found = budgets_of(self._server), self._names()
        names = _names_of_templates(by_name.values())
        page = found[self._start : self._start + ROWS_PER_PAGE]
        rows = [budget_row(by_name[name], names) for name in page]
        data = {"start": self._start, "rows": rows, "all": len(by_name), "found": len(found)}
        data |= {"all_templates": sum(map(is_template, by_name)), "found_templates": sum(map(is_template, found))}
        if data != self._last:
            self._last = data
            yield "budgets", {"now": time(), **data}

    def _names(self) -> list[str]:
        by_name, reverse = budgets_of(self._server), self._sort.startswith("-")
        names = [name for name in by_name if self._find in name.casefold()]
        if self._sort.removeprefix("-") == "used":
            return sorted(names, key=lambda name: (_used_share(by_name[name]), name), reverse=reverse)
        return sorted(names, reverse=reverse)

    async def wait(self) -> None:
        await asyncio.sleep(LIST_INTERVAL_S)


class BudgetView:
    def __init__(self, server: ServerView, name: str) -> None:
        self._server = server
        self._name = name
        self._last: dict[str, dict[str, Any]] = {}  # by the name of the event

    def changes(self) -> Iterator[Event]:
        """`no-budget` while there is none of this name; then `budget`, and for operators `holders`."""
        budget = budgets_of(self._server).get(self._name)
        for name, data in self._events(budget):
            if data != self._last.get(name):
                self._last[name] = data
                yield name, {"now": time(), **data}

    def _events(self, budget: BudgetReader | None) -> Iterator[Event]:
        if budget is None:
            self._last.pop("budget", None)
            yield "no-budget", {"budget": self._name}
            return
        self._last.pop("no-budget", None)
        names = _names_of_templates(budgets_of(self._server).values())
        yield "budget", budget_row(budget, names) | self._details(budget)

    def _details(self, budget: BudgetReader) -> dict[str, Any]:
        rule = budget.rule
        return {
            "slack": rule.slack,
            "tz": rule.tz,
            "template": rule.template,
            "refused_from": budget.refused_from,
        }

    async def wait(self) -> None:
        await asyncio.sleep(LIST_INTERVAL_S)


class OperatorBudgetView(BudgetView):
    """One budget, for operators: also the sites that hold most of it."""

    def _events(self, budget: BudgetReader | None) -> Iterator[Event]:
        yield from super()._events(budget)
        if budget is not None:
            yield "holders", self._holders(budget)

    def _holders(self, budget: BudgetReader) -> dict[str, Any]:
        """Name, state, spent, held, granted and reported as neither, whether it may keep that, and the smallest request
        that the site refuses.
        """
        holders = sorted(budget.holder_rows, key=lambda row: (-row.limit, row.site_id))
        rows = []
        for row in holders[:ROWS_PER_PAGE]:
            session = self._server.sessions.get(row.site_id)
            state = "gone" if row.given_up else "away" if session is None else session.state
            spent = 0 if budget.rule.rolling is not None else row.spent  # that was handed over
            room = row.limit - spent - row.held
            rows.append([str(row.site_id.site), state, spent, row.held, room, row.lent, row.refused_from])
        return {"rows": rows, "all": len(holders)}


def _names_of_templates(budgets: Iterable[BudgetReader]) -> Tally[str]:
    return Tally(budget.rule.template for budget in budgets if budget.rule.template is not None)


def _used_share(budget: BudgetReader) -> float:
    usage = budget.usage
    return 1.0 if usage.state is BudgetState.EXHAUSTED else usage.upper / usage.limit
