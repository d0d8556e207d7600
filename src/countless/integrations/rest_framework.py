"""Throttles of Django REST framework, for `DEFAULT_THROTTLE_CLASSES` and `throttle_classes`.

    REST_FRAMEWORK = {"DEFAULT_THROTTLE_CLASSES": ["countless.integrations.rest_framework.UserThrottle"]}

Each user, or address, has a budget: `throttle/user/<key>`. The coordinator has the rates:
`countless budget create 'throttle/user/*' --limit 1000 --per day`. The client is made from the environment.
"""

from functools import cache
from typing import Any, ClassVar, Unpack

from rest_framework.exceptions import APIException, ParseError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from countless.errors import AboveLimit, BudgetRefused, InvalidParameter, LimitExceeded
from countless.limiting.limit import Limit, Options


class QuotaUnavailable(APIException):
    """The quota is unknown: no answer of the coordinator, or no rule."""

    status_code = 503
    default_detail = "quota temporarily unavailable"
    default_code = "quota_unavailable"


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
        except BudgetRefused as problem:
            raise QuotaUnavailable from problem
        except InvalidParameter as problem:
            if not problem.allowed:  # the kind of the rule is wrong
                raise QuotaUnavailable from problem
            # The key comes from outside, as from X-Forwarded-For.
            raise ParseError(f"the key of this request must be {problem.allowed}") from problem
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
