"""`countless token`: create, list, rotate and revoke tokens. Works while coordinators run."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from countless.core.durations import require_duration
from countless.errors import InvalidParameter, UnknownName
from countless.token_file import SCOPES

if TYPE_CHECKING:
    from countless.server.storage.base import Token, TokenStore

EXAMPLE = "Example:  countless token site --label web-fleet --expires 90d"


def token(
    scope: Annotated[
        str | None, typer.Argument(help="site, read or operator; or rotate; without it, tokens are listed.")
    ] = None,
    label: Annotated[str, typer.Option(help="Label of the token, for listing, rotating and revoking.")] = "",
    site: Annotated[str | None, typer.Option(help="With scope site: valid for this site only.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="How long the token is valid, such as 30d. [default: until it is revoked]")
    ] = None,
    overlap: Annotated[str, typer.Option(help="With rotate: how long the former tokens stay valid.")] = "1h",
    revoke: Annotated[
        str | None,
        typer.Option(help="Revoke the tokens with this label, or these digits in the list, and end what they opened."),
    ] = None,
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
    """Create, list, rotate or revoke bearer tokens. A new token is printed once; only its hash is stored."""
    from countless.server import tokens
    from countless.server.audit import AuditLog, shell_user

    if scope not in (None, "rotate", *SCOPES):
        raise UnknownName("scope", scope, (*SCOPES, "rotate"))
    directory = state_dir or Path("countless-state")
    expires_in = None if expires is None else require_duration("expires", expires, "1s", "36500d")
    overlap_s = require_duration("overlap", overlap, "0s", "365d")
    if scope == "rotate" and not label:
        raise InvalidParameter("label", label, "given with rotate")
    former: set[bytes] = set()

    def work(store: "TokenStore") -> list[str]:
        nonlocal former
        if revoke is not None:
            return [f"{store.revoke(revoke)} revoked"]
        if scope == "rotate":
            new, former = tokens.successor(store, label, expires_in)
            return [new]
        if scope is not None:
            return [tokens.new_token(store, scope, label, site, expires_in)]
        return [_row(each) for each in store.tokens()]

    creates = state_dir is not None and scope in SCOPES and revoke is None
    lines = _change(nats, directory, creates, work)
    try:
        print("".join(f"{line}\n" for line in lines), end="", flush=True)
    except OSError as error:
        if scope is not None and revoke is None:  # the token was not shown
            fingerprint = tokens.digest(lines[0]).hex()[:12]
            _change(nats, directory, creates, lambda store: [str(store.revoke(fingerprint))])
        raise OSError(error.errno, error.strerror, "standard output") from None
    if scope == "rotate":
        _end_former(nats, directory, former, lines[0], overlap_s)
    if not nats and lines != ["0 revoked"] and (revoke is not None or scope is not None):
        event = "revoked" if revoke is not None else "rotated" if scope == "rotate" else "made"
        what = {"scope": scope if event == "made" else None, "label": label if revoke is None else revoke}
        AuditLog(directory).record(f"token {event}", shell_user(), **what, site=site, expires=expires)
    if lines == ["0 revoked"]:
        raise typer.Exit(1)


def _end_former(nats: str | None, directory: Path, former: set[bytes], new: str, overlap_s: float) -> None:
    """The operator's file gets the new token first: local commands must not be locked out."""
    from countless.server import tokens
    from countless.server.storage.base import StoreError

    def expire(store: "TokenStore") -> list[str]:
        tokens.expire_all(store, former, overlap_s)
        return []

    try:
        if path := tokens.replace_in_file(directory, former, new):
            typer.echo(f"countless: {path} has the new token", err=True)
        _change(nats, directory, False, expire)
    except (StoreError, OSError) as error:
        raise StoreError(f"the new token is valid, and the former ones stay valid: run it again; {error}") from None


def _change(nats: str | None, directory: Path, creates: bool, work: "Callable[[TokenStore], list[str]]") -> list[str]:
    from countless.server.app import require_nats
    from countless.server.settings import STATE_FILE
    from countless.server.storage.backup import require_not_lost
    from countless.server.storage.sqlite_store import SqliteStore

    if nats:
        require_nats()
        from countless.server.cluster.tokens import change_tokens

        return change_tokens(nats, work)
    file = directory / STATE_FILE
    require_not_lost(file)
    if not file.exists():
        _require_meant(file, creates)
    with closing(SqliteStore(file)) as store:
        return work(store)


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


def _row(each: "Token") -> str:
    expiry = "expires" if each.valid_at(time()) else "expired"
    times = (f"created {_minute(each.created)}", f"{expiry} {_minute(each.expires)}", f"used {_minute(each.last_used)}")
    return "\t".join((each.scope, each.label, each.site or "", each.fingerprint, *times))


def _minute(second: int | None) -> str:
    return "never" if second is None else f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%MZ}"
