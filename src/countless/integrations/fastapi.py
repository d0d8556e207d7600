"""Limits of single routes and routers of FastAPI; `countless.asgi.LimitRequests` limits a whole application.

router = APIRouter(dependencies=[Depends(Limited("orgs/{org}"))])

answer_refusals(app)    # what `countless.limited` refuses is a 429, in Starlette, too
"""

from collections.abc import Callable
from typing import Any, Unpack

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from countless.client.client import Client
from countless.errors import InvalidParameter
from countless.limiting.charge import KeyAndCost
from countless.limiting.limit import Limit, Options, refusal_of
from countless.limiting.responses import PROBLEMS


class Limited:
    """A dependency of FastAPI that takes units of a budget for each request, and answers 429 if none are left.

    It doesn't reach mounted applications. A route that returns a `Response` of its own has no `RateLimit` fields.

    Args:
        budget: Name of the budget. Fields in it are parameters of the path, or `{key}`.
        client: From `connect`. None: `default_client()`.
        key, cost: Functions of the scope, as for `LimitRequests`.
        options: Those of `limited`.
    """

    def __init__(
        self,
        budget: str,
        *,
        client: Client | None = None,
        key: Callable[[Any], object] | None = None,
        cost: Callable[[Any], int] | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._limit = Limit(client, budget, **options)
        self._requests = KeyAndCost(budget, key, cost, has_path=True)

    async def __call__(self, request: HTTPConnection, response: Response) -> None:
        if request.scope["type"] != "http":  # as in `LimitRequests`
            return
        of_request, cost = self._requests.units(request.scope)
        values = {**request.path_params, **of_request}
        if cost and (unknown := [field for field in self._limit.fields if field not in values]):
            allowed = f"a name whose fields are parameters of the path {request.url.path}; {unknown[0]} is none of them"
            raise InvalidParameter("budget", self._limit.budget, allowed)
        try:
            budget = await self._limit.atake(values, cost)
        except PROBLEMS as problem:
            refusal = refusal_of(problem)
            headers = {name: value for name, value in refusal.headers if not name.startswith("content-")}
            raise HTTPException(refusal.status, refusal.title, headers) from problem
        for name, value in [] if budget is None else self._limit.headers(budget):
            response.headers.append(name, value)


def answer_refusals(app: Starlette) -> None:
    """Answer what `countless.limited` refuses with 429, or with 503 while the quota is unknown."""
    for kind in PROBLEMS:
        app.add_exception_handler(kind, _answer)


def _answer(request: Request, problem: Exception) -> Response:
    refusal = refusal_of(problem)
    return Response(refusal.body, refusal.status, dict(refusal.headers))
