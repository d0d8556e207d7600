"""What the commands of the race have in common."""

import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from countless.errors import InvalidParameter


def known(parameter: str, chosen: list[str] | None, names: Iterable[str]) -> list[str]:
    """Those chosen, or all; InvalidParameter if one of them does not exist."""
    for name in chosen or ():
        if name not in names:
            raise InvalidParameter(parameter, name, f"one of: {', '.join(names)}")
    return list(chosen or names)


def create(file: Path) -> None:
    """Before a long run: InvalidParameter if the file cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        raise InvalidParameter("file", str(file), f"one that can be written ({error})") from error


def terminal() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120)
