"""Middleware of Django that admits requests while a budget lasts.

    MIDDLEWARE = [..., "django.contrib.auth.middleware.AuthenticationMiddleware",
                  "countless.integrations.django.limit_requests"]
    COUNTLESS_LIMIT = {"budget": "users/{key}", "key": "countless.integrations.django.user_or_address"}

Options beside `budget`: `key` and `cost`, functions of the request or their dotted names; `wait`, `timeout`,
`on_unreachable`, `shadow`, `policy` and `counter` as for `countless.limited`. The client is made from the environment.
"""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin
from django.utils.module_loading import import_string

from countless.client.budgets.client_budget import ClientBudget
from countless.errors import InvalidParameter
from countless.limiting.charge import KeyAndCost
from countless.limiting.limit import Limit, Options, is_refusal, refusal_of
from countless.limiting.responses import PROBLEMS

SETTING = "COUNTLESS_LIMIT"
Answer = Callable[[HttpRequest], Any]


def user_or_address(request: HttpRequest) -> str:
    """A key: the user's, or else the address of the caller."""
    user = getattr(request, "user", None)
    if user is None:
        raise ImproperlyConfigured(
            "user_or_address needs request.user: put limit_requests below AuthenticationMiddleware"
        )
    return f"user-{user.pk}" if user.is_authenticated else f"ip-{request.META.get('REMOTE_ADDR', '')}"


@sync_and_async_middleware
def limit_requests(get_response: Answer) -> Answer:
    """Take units of a budget for each request, and refuse the request if none are left."""
    limit, requests = _from_settings(getattr(settings, SETTING, None))

    def add_fields(response: HttpResponseBase, budget: ClientBudget | None) -> HttpResponseBase:
        for name, value in [] if budget is None else limit.headers(budget):
            response[name] = value
        return response

    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            values, cost = requests.units(request)
            try:
                budget = await limit.atake(values, cost)
            except PROBLEMS as problem:
                return _answer(problem)
            return add_fields(await get_response(request), budget)

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        values, cost = requests.units(request)
        try:
            budget = limit.take(values, cost)
        except PROBLEMS as problem:
            return _answer(problem)
        return add_fields(get_response(request), budget)

    return answer


class AnswerRefusals(MiddlewareMixin):
    """Middleware that answers what `countless.limited` refuses with 429, or with 503 while the quota is unknown."""

    def process_exception(self, request: HttpRequest, problem: Exception) -> HttpResponse | None:
        return _answer(problem) if is_refusal(problem) else None


def _from_settings(setting: Any) -> tuple[Limit, KeyAndCost]:
    if not isinstance(setting, dict) or "budget" not in setting:
        raise InvalidParameter(SETTING, setting, 'a dict such as {"budget": "keys/{key}", "key": "dotted.name"}')
    options = {name: value for name, value in setting.items() if name not in ("budget", "key", "cost")}
    if unknown := options.keys() - Options.__annotations__.keys():
        known = ", ".join(["budget", "key", "cost", *Options.__annotations__])
        raise InvalidParameter(SETTING, setting, f"a dict with options of these: {known}; {min(unknown)} is none")
    limit = Limit(None, setting["budget"], **options)
    return limit, KeyAndCost(limit.budget, *(_function(setting.get(name)) for name in ("key", "cost")))


def _answer(problem: Exception) -> HttpResponse:
    refusal = refusal_of(problem)
    return HttpResponse(refusal.body, status=refusal.status, headers=dict(refusal.headers))


def _function(value: Any) -> Any:
    return import_string(value) if isinstance(value, str) else value
