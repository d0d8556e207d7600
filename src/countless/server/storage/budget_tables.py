"""Budgets in the tables of the SQLite store: one row for each budget, each open period, and each site in a period.

They are written at once, without the journal: messages of budgets are few.
"""

import sqlite3

import msgspec

from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import SavedSite
from countless.core.messages import SiteId
from countless.server.storage.base import BudgetFields, Changes, PeriodFields, SavedBudget, SavedPeriod, StoreError


def load_budgets(database: sqlite3.Connection) -> dict[str, SavedBudget]:
    saved = {
        name: SavedBudget(BudgetFields(_parse_rule(name, rule), first), {})
        for name, rule, first in database.execute("SELECT * FROM budgets ORDER BY name")
    }
    for name, period, forgiven, gone, lost, number, resetting in database.execute("SELECT * FROM budget_periods"):
        fields = PeriodFields(int(forgiven), int(gone), int(lost), number, bool(resetting))
        saved[name].periods[period] = SavedPeriod(fields, {})
    for name, period, site, incarnation, limit, given_up, spent in database.execute("SELECT * FROM budget_sites"):
        saved_site = SavedSite(int(limit), bool(given_up), int(spent))
        saved[name].periods[period].sites[SiteId(site, incarnation)] = saved_site
    return saved


def write_budgets(database: sqlite3.Connection, changes: Changes) -> None:
    for name in changes.deleted_budgets:
        database.execute("DELETE FROM budgets WHERE name = ?", (name,))
        database.execute("DELETE FROM budget_periods WHERE budget = ?", (name,))
        database.execute("DELETE FROM budget_sites WHERE budget = ?", (name,))
    for budget in changes.closed_periods:
        database.execute("DELETE FROM budget_periods WHERE budget = ? AND period = ?", budget)
        database.execute("DELETE FROM budget_sites WHERE budget = ? AND period = ?", budget)
    database.executemany(
        "INSERT OR REPLACE INTO budgets VALUES (?, ?, ?)",
        [
            (name, msgspec.json.encode(rule).decode(), first_period)
            for name, (rule, first_period) in changes.budgets.items()
        ],
    )
    database.executemany(
        "INSERT OR REPLACE INTO budget_periods VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (*budget, str(each.forgiven), str(each.gone), str(each.lost), each.round, each.resetting)
            for budget, each in changes.periods.items()
        ],
    )
    sites = [
        (*budget, *site_id[:2], saved)
        for budget, by_id in changes.budget_sites.items()
        for site_id, saved in by_id.items()
    ]
    database.executemany(
        "INSERT OR REPLACE INTO budget_sites VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*row, str(saved.limit), saved.given_up, str(saved.spent)) for *row, saved in sites if saved is not None],
    )
    database.executemany(
        "DELETE FROM budget_sites WHERE (budget, period, site, incarnation) = (?, ?, ?, ?)",
        [row for *row, saved in sites if saved is None],
    )


def _parse_rule(budget: str, rule: str) -> BudgetRule:
    try:
        return msgspec.json.decode(rule, type=BudgetRule)
    except msgspec.ValidationError as error:
        raise StoreError(f"the rule of budget {budget!r} cannot be used here: {error}") from None
