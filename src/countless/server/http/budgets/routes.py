"""Budgets in the JSON API. Nothing of a budget is secret: the read scope may see all of it."""

from starlette.requests import Request
from starlette.responses import Response

from countless.core.budget.rule import BudgetRule
from countless.errors import InvalidParameter
from countless.server.http.api.openapi import Operation, error, json
from countless.server.http.budgets.schemas import (
    BudgetChange,
    BudgetList,
    BudgetReader,
    BudgetStatus,
    NewBudget,
    PeriodBounds,
)
from countless.server.http.routes import MAX_LISTED, read_body, server_of
from countless.server.site_server import SiteServer
from countless.wire.keys import is_template


def _status(server: SiteServer, budget: BudgetReader) -> BudgetStatus:
    rule, calendar, bounds = budget.rule, budget.calendar, budget.window
    limit, lower, upper, leaked, state = budget.usage
    window = resets_at = anchor = None
    if calendar is not None and bounds is not None:
        anchor, resets_at = calendar.anchor, calendar.local_time(bounds[1])
        window = PeriodBounds(calendar.local_time(bounds[0]), resets_at)
    return BudgetStatus(
        name=budget.name,
        limit=limit,
        per=rule.per,
        tz=rule.tz,
        anchor=anchor,
        slack=rule.slack,
        kind=rule.kind,
        on_loss=rule.on_loss,
        on_unreachable=rule.on_unreachable,
        window=window,
        resets_at=resets_at,
        used_lower=lower,
        used_upper=upper,
        leaked=leaked,
        holders=budget.holders,
        state=state,
        template=rule.template,
        max_names=rule.max_names,
        names=len(server.budgets.templates.names(budget.name)) if is_template(budget.name) else None,
        rolling=rule.rolling,
        held=budget.held,
    )


async def list_budgets(request: Request) -> Response:
    """All budgets in the order of their names, 1,000 at a time: templates, and the names in use that follow them."""
    server, after = server_of(request), request.query_params.get("after", "")
    names = sorted(name for name in server.budgets.by_name if name > after)
    page = [_status(server, server.budgets.by_name[name]) for name in names[:MAX_LISTED]]
    return json(BudgetList(page, names[MAX_LISTED - 1] if len(names) > MAX_LISTED else None))


async def create_budget(request: Request) -> Response:
    """Create a budget: for all time, with periods, or rolling. Its calendar, window and kind are fixed.

    `keys/*` is a template: each name that begins with `keys/` is a budget with its rule, made when it is first used.
    """
    server, new = server_of(request), await read_body(request, NewBudget)
    if new.name in server.budgets.by_name:
        return error(f"there is a budget {new.name!r} already: change it, or delete it first", 409)
    budget = server.budgets.create(new.name, BudgetRule(**new.rule()))
    await server.require_saved()
    return json(_status(server, budget), 201)


async def read_budget(request: Request) -> Response:
    """The limit of a budget, and what is known of its use."""
    server = server_of(request)
    return json(_status(server, server.budgets.get(request.path_params["name"])))


async def configure_budget(request: Request) -> Response:
    """Raise or lower a limit, or change the slack. A limit below what is spent already is refused.

    A template is changed with all names that follow it. A name that is changed itself follows its template no longer.
    The state is `lowering` until sites have returned what they may spend beyond a lowered limit.
    """
    server, changes = server_of(request), await read_body(request, BudgetChange)
    budget = server.budgets.configure(request.path_params["name"], changes.given())
    await server.require_saved()
    return json(_status(server, budget))


async def reset_budget(request: Request) -> Response:
    """Start the present period again: at most the limit is spent from the moment at which the reset is complete.

    The state is `resetting` until every site has reported what it has spent, or has timed out. Then that is forgiven.
    Units that sites hold, or may have spent without a report, count as spent after the reset. A template cannot be
    reset: reset the names that follow it.
    """
    server, name = server_of(request), request.path_params["name"]
    if is_template(name):
        raise InvalidParameter("name", name, "a name that follows the template, which has no units itself")
    budget = server.budgets.reset(name)
    await server.require_saved()
    return json(_status(server, budget))


async def delete_budget(request: Request) -> Response:
    """Delete a budget, or a template with all names that follow it. Connected sites may spend nothing more of it."""
    server_of(request).budgets.delete(request.path_params["name"])
    await server_of(request).require_saved()
    return Response(status_code=204)


_BUDGETS, _BUDGET = "/api/v1/budgets", "/api/v1/budgets/{name}"

BUDGET_OPERATIONS = (
    # Before the next path, which matches this one as well: a name may have slashes.
    Operation("POST", _BUDGET + "/reset", "operator", reset_budget, BudgetStatus, error_statuses=(400, 404)),
    Operation("GET", _BUDGETS, "read", list_budgets, BudgetList, query={"after": {"type": "string"}}),
    Operation(
        "POST", _BUDGETS, "operator", create_budget, BudgetStatus, 201, body=NewBudget, error_statuses=(400, 409)
    ),
    Operation("GET", _BUDGET, "read", read_budget, BudgetStatus, error_statuses=(404,)),
    Operation(
        "PATCH", _BUDGET, "operator", configure_budget, BudgetStatus, body=BudgetChange, error_statuses=(400, 404)
    ),
    Operation("DELETE", _BUDGET, "operator", delete_budget, None, 204, error_statuses=(404,)),
)
