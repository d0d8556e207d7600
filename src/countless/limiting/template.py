"""Names of budgets with fields, such as `keys/{key}`."""

from string import Formatter

from countless.errors import InvalidParameter


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
