"""Keys and costs of requests, for budgets such as `keys/{key}`."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from countless.errors import InvalidParameter
from countless.limiting.limit import Limit, Values

KEY = "key"


def digest(secret: bytes) -> str:
    """16 digits of its hash: API keys are secret; names of budgets are not.

    >>> digest(b"secret")
    '2bb80d537b1da3e3'
    """
    return sha256(secret).hexdigest()[:16]


class KeyAndCost:
    """The functions of a program that say what a request is charged to, and with how many units."""

    def __init__(
        self,
        limit: Limit,
        key: Callable[[Any], object] | None,
        cost: Callable[[Any], int] | None,
        *,
        has_path: bool = False,
    ) -> None:
        others = () if has_path else set(limit.fields) - {KEY}
        if (KEY in limit.fields) is not (key is not None) or others:
            raise InvalidParameter(
                "budget", limit.budget, "a name with {key} if a key is given, and without it otherwise"
            )
        for parameter, function in (("key", key), ("cost", cost)):
            if function is not None and not callable(function):
                raise InvalidParameter(parameter, function, "a function of the request")
        self._key = key
        self._cost = cost

    def units(self, request: Any) -> tuple[Values, int]:
        """Return the fields of the budget's name, and the cost: 0 for a request that is not limited."""
        if self._key is None:
            return {}, 1 if self._cost is None else self._cost(request)
        key = self._key(request)
        return {KEY: key}, 0 if key is None else 1 if self._cost is None else self._cost(request)
