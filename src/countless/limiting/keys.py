"""Keys of requests, for budgets such as `keys/{key}`."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from countless.errors import InvalidParameter
from countless.limiting.limit import Limit

KEY = "key"


def digest(secret: bytes) -> str:
    """16 digits of its hash: API keys are secret; names of budgets are not.

    >>> digest(b"secret")
    '2bb80d537b1da3e3'
    """
    return sha256(secret).hexdigest()[:16]


def require_key_and_cost(
    limit: Limit, key: Callable[[Any], str | None] | None, cost: Callable[[Any], int] | None
) -> None:
    """Raise InvalidParameter unless both are functions, and `{key}` is a field exactly if there is a key."""
    if limit.fields != (() if key is None else (KEY,)):
        raise InvalidParameter("budget", limit.budget, "a name with {key} if a key is given, and without it otherwise")
    for parameter, function in (("key", key), ("cost", cost)):
        if function is not None and not callable(function):
            raise InvalidParameter(parameter, function, "a function of the request")
