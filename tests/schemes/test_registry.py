"""The registry: the names that type checkers know are those that exist."""

from typing import get_args

import pytest

from countless import Tracker, errors
from countless.errors import UnknownName
from countless.schemes.registry import SCHEMES, SchemeName


def test_type_of_names_lists_every_scheme_of_the_package() -> None:
    """Here the lab is installed, which has two of its own."""
    assert {*get_args(SchemeName), "hyz", "blocks"} == set(SCHEMES)


def test_misspelt_scheme_is_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(UnknownName, match="did you mean 'dithered'"):
        Tracker(sites=2, scheme="ditherd")  # type: ignore[arg-type]


def test_misspelt_period_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UnknownName, match="did you mean 'month'"):
        Tracker(sites=2, per="mounth")  # type: ignore[arg-type]


def test_only_the_first_names_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator with 100,000 similar names would stand still for seconds otherwise."""
    compared: list[int] = []

    def compare(word: str, names: list[str], n: int) -> list[str]:
        compared.append(len(names))
        return []

    monkeypatch.setattr(errors, "get_close_matches", compare)
    error = UnknownName("counter", "page-x", [f"page-{number}" for number in range(100_000)])
    assert compared == [errors.MAX_COMPARED]
    assert (error.hint, "100000 in all" in str(error)) == ("", True)
