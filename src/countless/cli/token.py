"""`countless token`: create, list and revoke tokens. Works while coordinators run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countless.errors import InvalidParameter

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
        Path | None,
        typer.Option(
            envvar="COUNTLESS_STATE_DIR", help="The coordinator's state directory. [default: countless-state]"
        ),
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(envvar="COUNTLESS_NATS", help="URL of the NATS broker that several coordinators share."),
    ] = None,
) -> None:
    """Create, list or revoke bearer tokens. A new token is printed once; only its hash is stored."""
    from countless.server.app import require_nats
    from countless.server.audit import AuditLog, shell_user
    from countless.server.http.auth import SCOPES, new_token
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
        file = (state_dir or Path("countless-state")) / STATE_FILE
        if not file.exists():
            _require_meant(file, state_dir is not None and scope in SCOPES and revoke is None)
        store = SqliteStore(file)
        try:
            lines, code = work(store)
        finally:
            store.close()
        if (revoke is not None or scope is not None) and code == 0:
            event, what = ("token revoked", revoke) if revoke is not None else ("token made", label)
            AuditLog(file.parent).record(event, shell_user(), scope=scope, label=what, site=site)
    for line in lines:
        print(line)
    if code:
        raise typer.Exit(code)


def _require_meant(file: Path, create: bool) -> None:
    """No coordinator has used the directory yet, so a token there may be one that no coordinator ever sees."""
    directory = file.parent.absolute()
    if not create:
        allowed = f"the directory of a coordinator: there is no {file.name} in it. Give it with --state-dir"
        raise InvalidParameter("state_dir", str(directory), allowed)
    typer.echo(
        f"countless: no coordinator has used {directory} yet: the token is for one that is started with this state_dir",
        err=True,
    )


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
    if not {"read", "operator"} & {scope, *(each.scope for each in before)}:
        typer.echo(
            "countless: there is no token of scope read or operator, so nothing can be read any more, also on this "
            "machine. Make one:\n  countless token operator --label me    and use it as COUNTLESS_TOKEN",
            err=True,
        )
