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
