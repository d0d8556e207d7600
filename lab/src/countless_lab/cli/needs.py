"""The needs of a command of the lab, checked before it starts: a long run must not end for want of a package."""

from importlib.util import find_spec

from countless.errors import MissingExtra


def require_packages(*names: str) -> None:
    for name in names:
        if find_spec(name) is None:
            raise MissingExtra(name, "figures", "countless-lab")
