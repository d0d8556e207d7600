"""`countless token`: create, list and revoke tokens. Works while coordinators run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from countless.server.storage.base import Token

EXAMPLE = "Example:  countless token site --label web-fleet"


def token(
    scope: Annotated[
        str | None, typer.Argument(help="site, read or operator; without a scope, tokens are listed.")
    ] = None,
    label: Annotated[str, typer.Option(help="Label of the token, for listing and revoking.")] = "",
    site: Annotated[str | None, typer.Option(help="With scope site: valid for this site only.")] = None,
    revoke: Annotated[str | None, typer.Option(help="Revoke the tokens with this label.")] = None,
    state_dir: Annotated[
        Path, typer.Option(envvar="COUNTLESS_STATE_DIR", help="The coordinator's state directory.")
    ] = Path("countless-state"),
    nats: Annotated[
        str | None,
        typer.Option(envvar="COUNTLESS_NATS", help="URL of the NATS broker that several coordinators share."),
    ] = None,
) -> None:
    """Create, list or revoke bearer tokens. A new token is printed once; only its hash is stored."""
    from countless.server.app import require_nats
    from countless.server.http.auth import new_token
    from countless.server.settings import STATE_FILE
    from countless.server.storage.base import TokenStore
    from countless.server.storage.sqlite_store import SqliteStore

    def work(store: TokenStore) -> tuple[list[str], int]:
        if revoke is not None:
            number = store.revoke(revoke)
            return [f"{number} revoked"], 0 if number else 1
        if scope is not None:
            _warn(store.tokens(), scope)
            return [new_token(store, scope, label, site)], 0
        tokens = store.tokens()
        return [f"{each.scope}\t{each.label}\t{each.site or ''}\t{each.digest.hex()[:12]}" for each in tokens], 0

    if nats:
        require_nats()
        from countless.server.cluster.tokens import change_tokens

        lines, code = change_tokens(nats, work)
    else:
        store = SqliteStore(state_dir / STATE_FILE)
        try:
            lines, code = work(store)
        finally:
            store.close()
    for line in lines:
        print(line)
    if code:
        raise typer.Exit(code)


def _warn(before: "list[Token]", scope: str) -> None:
    """The first token locks out what needed none before. Open connections stay, so it shows only when they end."""
    from countless.server.http.auth import SCOPES

    if scope not in SCOPES:
        return
    if not before:
        typer.echo("countless: the first token: from now on every site, reader and operator needs one.", err=True)
    if "site" not in {scope, *(each.scope for each in before)}:
        typer.echo(
            "countless: there is no token of scope site, so sites that connect from now on are refused. Make one:\n"
            "  countless token site --label fleet    and give it to the sites as COUNTLESS_TOKEN",
            err=True,
        )
