"""`countless restore`: put a copy that `countless backup` made in place of the coordinator's state."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from countless.cli.options import StateDir

EXAMPLE = "Example:  countless restore /backups/countless.sqlite"


def restore(
    copy: Annotated[Path, typer.Argument(help="Read this file, written by `countless backup`.")],
    state_dir: StateDir = Path("countless-state"),
) -> None:
    """Put a backup in place of the coordinator's state.

    The coordinator must not run. The old state is kept beside it.
    """
    from countless.server import tokens
    from countless.server.audit import AuditLog, shell_user
    from countless.server.serve import exclusive
    from countless.server.settings import STATE_FILE
    from countless.server.storage import backup
    from countless.server.storage.base import Token
    from countless.server.storage.sqlite_store import SqliteStore

    backup.check(copy)
    state = state_dir / STATE_FILE
    backup.require_directory(state)
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with exclusive(state_dir):
        # An interrupted restore has set the state aside, and left a copy that has its tokens.
        known = backup.tokens_of(state if state.exists() else backup.part_of(state))
        again: list[Token] = []
        operators: Path | None = None

        def merge_tokens(part: Path) -> None:
            nonlocal again, operators
            with closing(SqliteStore(part)) as store:
                again, operators = tokens.after_restore(store, known, state_dir)

        former = backup.restore(copy, state, merge_tokens)
        audit = AuditLog(state_dir)
        audit.record("state restored", shell_user(), copy=str(copy), former=former and str(former))
        if operators is not None:
            audit.record("token made", shell_user(), scope="operator", label=tokens.RESTORED_LABEL)
    print(f"{state} is now the copy {copy}. Start the coordinator: budgets wait for all sites first.")
    if former is not None:
        print(f"The old state is in {former}.")
    if not known:
        print("Tokens are as in the copy: programs with a newer token are refused,")
        print(f"and tokens revoked since are valid again. List them with: countless token list --state-dir {state_dir}")
    if again:
        print("These tokens are valid again: they are in the copy and were gone since. If you had revoked them:")
        for token in again:
            command = f"countless token revoke {token.fingerprint} --state-dir {state_dir}"
            print(f"  {command}  # {token.scope}, {token.label!r}")
    if operators is not None:
        print(f"{operators} holds a new token for the operator.")
