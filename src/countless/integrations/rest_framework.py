"""Throttles of Django REST framework, for `DEFAULT_THROTTLE_CLASSES` and `throttle_classes`.

    REST_FRAMEWORK = {"DEFAULT_THROTTLE_CLASSES": ["countless.integrations.rest_framework.UserThrottle"]}

Each user, or address, has a budget: `throttle/user/<key>`. The coordinator has the rates:
`countless budget create 'throttle/user/*' --limit 1000 --per day`. The client is made from the environment.
"""

from functools import cache
from typing import Any, ClassVar, Unpack

from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from countless.errors import AboveLimit, LimitExceeded
from countless.limiting.limit import Limit, Options, refusal_of
from countless.limiting.responses import PROBLEMS, Refusal


class NotAdmitted(APIException):
    """A request that was refused though its quota may last: the quota is unknown, or the key makes no name."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.title)
        self.status_code = refusal.status
        self.wait = int(dict(refusal.headers).get("retry-after", 0))  # the framework makes it Retry-After


@cache
def _limit(scope: str, **options: Unpack[Options]) -> Limit:
    return Limit(None, f"throttle/{scope}/{{key}}", **options)


class UserThrottle(BaseThrottle):
    """A budget for each user, and for each address of callers who are not logged in."""

    scope = "user"
    options: ClassVar[Options] = {}  # of `countless.limited`: wait, on_unreachable, shadow, policy ...

    def allow_request(self, request: Request, view: Any) -> bool:
        scope, key = self.scope_of(view), self.key_of(request)
        self._retry_after: float | None = None
        if scope is None or key is None:
            return True
        limit = _limit(scope, **self.options)  # a wrong option is an error of the program, not of the request
        try:
            limit.take({"key": key}, 1)
        except (LimitExceeded, AboveLimit) as refused:
            self._retry_after = getattr(refused, "retry_after", None)
            return False
        except PROBLEMS as problem:
            raise NotAdmitted(refusal_of(problem)) from problem
        return True

    def wait(self) -> float | None:
        return self._retry_after

    def scope_of(self, view: Any) -> str | None:
        return self.scope

    def key_of(self, request: Request) -> str | None:
        """None: the request is not limited."""
        user = request.user
        return f"user-{user.pk}" if user and user.is_authenticated else f"ip-{self.get_ident(request)}"


class AnonThrottle(UserThrottle):
    """A budget for each address of callers who are not logged in: `throttle/anon/<key>`."""

    scope = "anon"

    def key_of(self, request: Request) -> str | None:
        return None if request.user and request.user.is_authenticated else super().key_of(request)


class ScopedThrottle(UserThrottle):
    """A budget for each caller of views with a `throttle_scope`: `throttle/<scope>/<key>`. Others are not limited."""

    def scope_of(self, view: Any) -> str | None:
        return getattr(view, "throttle_scope", None)
