"""The registry: the names that type checkers know are those that exist."""

from typing import get_args

import pytest

from countless import Tracker
from countless.errors import UnknownName
from countless.schemes.registry import SCHEMES, SchemeName


def test_type_of_names_lists_every_scheme() -> None:
    assert set(get_args(SchemeName)) == set(SCHEMES)


def test_misspelt_scheme_is_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(UnknownName, match="did you mean 'dithered'"):
        Tracker(sites=2, scheme="ditherd")  # type: ignore[arg-type]
