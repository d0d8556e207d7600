"""The budget that a request is charged to, by a name with fields such as `keys/{key}`, and its cost."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from string import Formatter
from typing import Any

from countless.errors import InvalidParameter

KEY = "key"
Values = Mapping[str, object]  # of the fields of a name


def fields_of(budget: str) -> tuple[str, ...]:
    """
    >>> fields_of("orgs/{org}/keys/{key}"), fields_of("exports")
    (('org', 'key'), ())
    """
    try:
        parts = list(Formatter().parse(budget))
        valid = all(field is None or (field.isidentifier() and not spec and not how) for _, field, spec, how in parts)
    except (TypeError, ValueError):
        parts, valid = [], False
    if not valid:
        raise InvalidParameter("budget", budget, "a name, which may have fields such as {key}")
    return tuple(field for _, field, _, _ in parts if field is not None)


_ENCODED = str.maketrans({"%": "%25", "/": "%2F", "*": "%2A"})


def part_of_name(field: str, value: object) -> str:
    """Return what stands in a name for a field: one part of it, so that no caller reaches the rule of another.

    >>> part_of_name("key", "vip/me"), part_of_name("user", 7)
    ('vip%2Fme', '7')
    """
    text = "" if value is None else str(value)
    if not text:
        raise InvalidParameter(field, value, "text of at least one character")
    if not isinstance(value, str) and " at 0x" in text:  # an address: each call would have its own budget
        raise InvalidParameter(field, value, "text, a number or an id that is the same in every process")
    return text.translate(_ENCODED)


def digest(secret: bytes) -> str:
    """16 digits of its hash: API keys are secret; names of budgets are not.

    >>> digest(b"secret")
    '2bb80d537b1da3e3'
    """
    return sha256(secret).hexdigest()[:16]


class KeyAndCost:
    """The functions of a program that return what a request is charged to, and with how many units."""

    def __init__(
        self,
        budget: str,
        key: Callable[[Any], object] | None,
        cost: Callable[[Any], int] | None,
        *,
        has_path: bool = False,
    ) -> None:
        fields = fields_of(budget)
        others = () if has_path else set(fields) - {KEY}
        if (KEY in fields) is not (key is not None) or others:
            raise InvalidParameter("budget", budget, "a name with {key} if a key is given, and without it otherwise")
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
