"""`countless backup`: a copy of the coordinator's state. Works while it runs."""

from pathlib import Path
from typing import Annotated

import typer

from countless.cli.options import StateDir

EXAMPLE = "Example:  countless backup /backups/countless.sqlite"


def backup(
    copy: Annotated[Path, typer.Argument(help="Write this file; it replaces an earlier copy once complete.")],
    state_dir: StateDir = Path("countless-state"),
) -> None:
    """Copy the coordinator's state to a file, even while it runs."""
    from countless.server.settings import STATE_FILE
    from countless.server.storage.backup import back_up

    size = back_up(state_dir / STATE_FILE, copy)
    print(f"{copy}: {size:,} bytes, of {state_dir / STATE_FILE}")
