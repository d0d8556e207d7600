"""Results that were read, as values that JSON has."""

from datetime import datetime
from math import inf
from typing import Any


def json_fields(result: Any) -> dict[str, Any]:
    """The fields of a named tuple, with times as ISO 8601 and None for no upper bound."""
    return {name: _plain(value) for name, value in result._asdict().items()}


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return json_fields(value) if hasattr(value, "_asdict") else [_plain(each) for each in value]
    return None if value == inf else value
