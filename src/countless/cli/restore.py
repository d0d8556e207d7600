"""`countless restore`: put a copy that `countless backup` made in place of the coordinator's state."""

from pathlib import Path
from typing import Annotated

import typer

from countless.cli.options import StateDir
from countless.token_file import OPERATOR_TOKEN_FILE

EXAMPLE = "Example:  countless restore /backups/countless.sqlite"


def restore(
    copy: Annotated[Path, typer.Argument(help="File that `countless backup` has written.")],
    state_dir: StateDir = Path("countless-state"),
) -> None:
    """Put a copy in place of the coordinator's state. The coordinator must not run; the former state is kept."""
    from countless.server.audit import AuditLog, shell_user
    from countless.server.serve import exclusive
    from countless.server.settings import STATE_FILE
    from countless.server.storage import backup

    backup.check(copy)
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with exclusive(state_dir):
        former = backup.restore(copy, state_dir / STATE_FILE)
        AuditLog(state_dir).record("state restored", shell_user(), copy=str(copy), former=former and str(former))
    print(f"{state_dir / STATE_FILE} is now the copy {copy}. Start the coordinator: budgets wait for all sites first.")
    if former is not None:
        print(f"The former state is in {former}.")
    if not (state_dir / OPERATOR_TOKEN_FILE).exists():
        print("The operator's token is not in a copy. Make another one: countless token operator --label me")
