"""`countless validate`: check a configuration file."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example:  countless validate /etc/countless.toml"


def validate(config: Annotated[Path, typer.Argument(help="Read this TOML file.")]) -> None:
    """Check a configuration file, and print the resulting settings.

    Exits with 2 and names the first mistake, if there is one.
    """
    from countless.server.settings import load_settings

    settings = load_settings({}, {}, config)
    settings.require_safe()
    for name, value in asdict(settings).items():
        print(f"{name} = {value!r}")
