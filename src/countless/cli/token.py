"""`countless token`: who may count, read or operate. Works on the state directory, beside a running coordinator."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example:  countless token site --label web-fleet"


def token(
    scope: Annotated[str | None, typer.Argument(help="site, read or operator; without one, tokens are listed.")] = None,
    label: Annotated[str, typer.Option(help="A name to recognise and revoke it by.")] = "",
    site: Annotated[str | None, typer.Option(help="With scope site: good for this site only.")] = None,
    revoke: Annotated[str | None, typer.Option(help="Take back the tokens of this label.")] = None,
    state_dir: Annotated[
        Path, typer.Option(envvar="COUNTLESS_STATE_DIR", help="The coordinator's state directory.")
    ] = Path("countless-state"),
) -> None:
    """Create, list or revoke bearer tokens. A new token is printed this once; only its hash is kept."""
    from countless.service.access import new_token
    from countless.service.app import STATE_FILE
    from countless.service.store import Store

    store = Store(state_dir / STATE_FILE)
    try:
        if revoke is not None:
            number = store.revoke(revoke)
            print(f"{number} revoked")
            if not number:
                raise typer.Exit(1)
        elif scope is not None:
            print(new_token(store, scope, label, site))
        else:
            for each in store.tokens():
                print(f"{each.scope}\t{each.label}\t{each.site or ''}\t{each.digest.hex()[:12]}")
    finally:
        store.close()
