"""Which names the sites of a `Tracker` or `Budget` may have."""

from collections.abc import Container, Iterable, Sized
from typing import Protocol

from countless.core.messages import SiteName
from countless.errors import InvalidParameter


def site_names(sites: int | Iterable[SiteName]) -> list[SiteName]:
    """The names of so many sites, 0, 1, 2, ..., or the names given."""
    if isinstance(sites, bool | str | bytes) or not isinstance(sites, int | Iterable):
        raise InvalidParameter("sites", sites, "a number of sites or a collection of their names")
    if isinstance(sites, int):
        if sites < 1:
            raise InvalidParameter("sites", sites, "at least 1; a fleet that only grows by add_site begins with []")
        return list(range(sites))
    names = list(sites)
    for name in names:
        require_name(name)
    if len(set(names)) != len(names):
        raise InvalidParameter("sites", names, "names that all differ")
    return names


def require_name(name: object) -> None:
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise InvalidParameter("site", name, "a string or an integer")


class _Names(Sized, Container[object], Protocol):
    pass


def free_number(names: _Names) -> int:
    """The next number that is not the name of a site."""
    number = len(names)
    while number in names:
        number += 1
    return number
