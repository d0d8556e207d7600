"""Names of counters and series."""

import pytest

from countless.errors import InvalidParameter, ProtocolError
from countless.wire.names import MAX_NAME_CHARS, overflow_name, require_name, series_name, validate_name


def test_series_name_does_not_depend_on_the_order_of_labels() -> None:
    assert series_name("hits", {"b": "2", "a": "1"}) == series_name("hits", {"a": "1", "b": "2"}) == 'hits{a="1",b="2"}'


def test_label_values_are_escaped() -> None:
    assert series_name("hits", {"a": 'x"y\\z\n'}) == 'hits{a="x\\"y\\\\z\\n"}'


def test_overflow_series_is_a_series_of_its_counter() -> None:
    assert overflow_name("hits") == 'hits{overflow="true"}'


@pytest.mark.parametrize("name", ["", "a\nb", "x" * (MAX_NAME_CHARS + 1), 7, None])
def test_invalid_name_is_refused(name: object) -> None:
    with pytest.raises(ProtocolError, match=r"counter is .*: it must be 1 to 500 printable characters"):
        require_name(name, "counter")
    with pytest.raises(InvalidParameter, match="counter must be 1 to 500 printable characters"):
        validate_name(name)


def test_longest_name_is_allowed() -> None:
    assert require_name("x" * MAX_NAME_CHARS, "site") == validate_name("x" * MAX_NAME_CHARS)
