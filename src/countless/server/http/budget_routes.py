"""Budgets in the JSON API. Nothing of a budget is secret: the read scope may see all of it."""

from starlette.requests import Request
from starlette.responses import Response

from countless.core.budget.coordinator import BudgetCoordinator
from countless.server.http.openapi import Operation, error, json
from countless.server.http.routes import read_body
from countless.server.http.schemas import BudgetList, BudgetRule, BudgetStatus, NewBudget
from countless.server.sessions.site_server import SiteServer


def _server(request: Request) -> SiteServer:
    server: SiteServer = request.app.state.server
    return server


def _status(budget: BudgetCoordinator) -> BudgetStatus:
    limit, lower, upper, leaked, state = budget.usage
    return BudgetStatus(budget.budget.name, limit, budget.slack, lower, upper, leaked, budget.holders, state)


async def list_budgets(request: Request) -> Response:
    """All budgets in the order of their names."""
    return json(BudgetList([_status(budget) for _, budget in sorted(_server(request).budgets.by_name.items())]))


async def create_budget(request: Request) -> Response:
    """Create a budget."""
    server, rule = _server(request), await read_body(request, NewBudget)
    if rule.name in server.budgets.by_name:
        return error(f"there is a budget {rule.name!r} already", 409)
    budget = server.budgets.create(rule.name, rule.limit, rule.slack)
    await server.flush()
    return json(_status(budget), 201)


async def read_budget(request: Request) -> Response:
    """The limit of a budget, and what is known of its use."""
    return json(_status(_server(request).budgets.get(request.path_params["name"])))


async def configure_budget(request: Request) -> Response:
    """Raise or lower a limit, or change the slack. A limit below what is spent already is refused.

    The state is `lowering` until sites have returned what they may spend beyond a lowered limit.
    """
    server, rule = _server(request), await read_body(request, BudgetRule)
    budget = server.budgets.configure(request.path_params["name"], rule.limit, rule.slack)
    await server.flush()
    return json(_status(budget))


async def delete_budget(request: Request) -> Response:
    """Delete a budget. Connected sites may spend nothing more of it."""
    _server(request).budgets.delete(request.path_params["name"])
    await _server(request).flush()
    return Response(status_code=204)


_BUDGETS, _BUDGET = "/api/v1/budgets", "/api/v1/budgets/{name}"

BUDGET_OPERATIONS = (
    Operation("GET", _BUDGETS, "read", list_budgets, BudgetList),
    Operation(
        "POST", _BUDGETS, "operator", create_budget, BudgetStatus, 201, body=NewBudget, error_statuses=(400, 409)
    ),
    Operation("GET", _BUDGET, "read", read_budget, BudgetStatus, error_statuses=(404,)),
    Operation("PATCH", _BUDGET, "operator", configure_budget, BudgetStatus, body=BudgetRule, error_statuses=(400, 404)),
    Operation("DELETE", _BUDGET, "operator", delete_budget, None, 204, error_statuses=(404,)),
)
