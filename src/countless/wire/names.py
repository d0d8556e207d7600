"""Names of counters, labelled counters and sites, as they appear in frames and stored files."""

import re

from countless.errors import InvalidParameter, ProtocolError

MAX_NAME_CHARS = 500  # a counter with its labels
NAME_RULE = f"1 to {MAX_NAME_CHARS} printable characters"
_IN_NO_COUNTER = frozenset(":|,;[]{}")  # the agent's lines have a meaning for them, or other dialects of StatsD
_LABEL = re.compile(r"\w[\w./-]*")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def require_name(name: object, what: str) -> str:
    """Return `name`; raise `ProtocolError` unless it is 1 to MAX_NAME_CHARS printable characters."""
    if not is_valid_name(name):
        raise ProtocolError(f"{what} is {str(name)[:50]!r}: it must be {NAME_RULE}")
    return str(name)


def validate_name(name: object, parameter: str = "counter") -> str:
    """Return a name that a program gave; raise `InvalidParameter` where `require_name` raises `ProtocolError`."""
    if not is_valid_name(name):
        raise InvalidParameter(parameter, name, NAME_RULE)
    return str(name)


def is_valid_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()


def is_counter(name: object) -> bool:
    return is_valid_name(name) and _IN_NO_COUNTER.isdisjoint(str(name))


def validate_counter(name: object, parameter: str = "counter") -> str:
    """Return the name of a counter without labels that a program gave; raise InvalidParameter if it may not have it."""
    if not is_counter(name):
        raise InvalidParameter(parameter, name, f"{NAME_RULE}, and none of {' '.join(sorted(_IN_NO_COUNTER))}")
    return str(name)


def is_label(name: str) -> bool:
    """Letters, digits, `_`, `.`, `/` and `-`; the first is a letter, a digit or `_`."""
    return _LABEL.fullmatch(name) is not None


def series_name(counter: str, labels: dict[str, str]) -> str:
    """The name of a series (a counter with labels), the same for every order of the labels.

    >>> series_name("requests", {"route": "/a", "code": "200"})
    'requests{code="200",route="/a"}'
    """
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))
    return f"{counter}{{{','.join(pairs)}}}"


def overflow_name(counter: str) -> str:
    """The series that receives the events of all label combinations beyond the cap."""
    return series_name(counter, {"overflow": "true"})
