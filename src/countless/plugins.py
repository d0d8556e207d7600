"""Schemes and adversaries of other packages, found by their entry points."""

from importlib.metadata import entry_points
from typing import Any

from countless.errors import InvalidParameter


def plugins(group: str, kind: type, own: dict[str, Any]) -> dict[str, Any]:
    """The classes that other packages registered in the group, by name. A name of ours is not replaced."""
    found: dict[str, Any] = {}
    for entry in entry_points(group=group):
        made = entry.load()
        if not (isinstance(made, type) and issubclass(made, kind) and getattr(made, "name", None) == entry.name):
            raise InvalidParameter(group, entry.value, f"a subclass of {kind.__name__} whose name is {entry.name!r}")
        if entry.name in own:
            raise InvalidParameter(group, entry.name, "a name that Countless does not use itself")
        found[entry.name] = made
    return found
