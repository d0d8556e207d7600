"""Amounts and shares as they are written on a command line."""

import pytest

from countless.cli.numbers import number_of_units, share
from countless.errors import InvalidParameter


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("1000", 1000),
        ("50M", 50_000_000),
        ("1.5k", 1500),
        ("1e6", 10**6),
        ("250_000", 250_000),
        ("0.001G", 10**6),
        ("4611686018427387904", 2**62),
        ("-1", -1),  # the coordinator says what is allowed
    ],
)
def test_amount_is_read_exactly(text: str, units: int) -> None:
    assert number_of_units("limit", text) == units


@pytest.mark.parametrize(
    "text", ["", "M", "many", "1.5", "0.0001k", "1/2", "5 M M", "50m", "nan", "inf", "1e999999999"]
)
def test_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="limit must be a whole number of units"):
        number_of_units("limit", text)


@pytest.mark.parametrize(("text", "value"), [("1%", 0.01), ("0.5%", 0.005), ("0.01", 0.01), ("0", 0.0), ("100%", 1.0)])
def test_share_is_read_as_percent_or_number(text: str, value: float) -> None:
    assert share("slack", text) == value


@pytest.mark.parametrize("text", ["", "%", "some", "1/2", "1%%", "nan"])
def test_invalid_share_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="slack must be a share such as 1% or"):
        share("slack", text)
