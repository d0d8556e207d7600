"""Create, list, rotate and revoke bearer tokens, while coordinators run."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from countless.core.parameters import require_duration
from countless.errors import InvalidParameter, UnknownName
from countless.token_file import SCOPES

if TYPE_CHECKING:
    from countless.server.storage.base import Token, TokenStore

T = TypeVar("T")
app = typer.Typer(help=__doc__)

Expires = Annotated[
    str | None, typer.Option(help="Let the token expire after this long, such as 30d.", show_default="never")
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        envvar="COUNTLESS_STATE_DIR",
        help="Use this state directory of a coordinator.",
        show_default="countless-state",
    ),
]
Nats = Annotated[
    str | None, typer.Option(envvar="COUNTLESS_NATS", help="Use the NATS broker that coordinators share: nats://...")
]


@app.command(epilog="Example:  countless token create site --label web-fleet --expires 90d")
def create(
    scope: Annotated[str, typer.Argument(help="What it allows: site, read or operator.")],
    label: Annotated[str, typer.Option(help="Label the token, for listing, rotating and revoking.")] = "",
    site: Annotated[str | None, typer.Option(help="With scope site: let only this site use it.")] = None,
    expires: Expires = None,
    state_dir: StateDir = None,
    nats: Nats = None,
) -> None:
    """Create a token and print it, once.

    Only its hash is stored. A token of scope site counts and spends, read
    reads answers, operator does everything.
    """
    from countless.server import tokens

    if scope not in SCOPES:
        raise UnknownName("scope", scope, SCOPES)
    expires_in = _seconds(expires)
    place = _Place(state_dir, nats)
    place.show_new(lambda store: tokens.new_token(store, scope, label, site, expires_in), creates=state_dir is not None)
    place.record("token made", scope=scope, label=label, site=site, expires=expires)


@app.command("list", epilog="Example:  countless token list")
def list_(state_dir: StateDir = None, nats: Nats = None) -> None:
    """List all tokens: scope, label, site, first digits of the hash, times."""
    for each in _Place(state_dir, nats).change(lambda store: store.tokens()):
        print(_row(each))


@app.command(epilog="Example:  countless token rotate web-fleet --overlap 1h")
def rotate(
    label: Annotated[str, typer.Argument(help="The label of the tokens to replace.")],
    overlap: Annotated[str, typer.Option(help="Keep the old tokens valid for this long.")] = "1h",
    expires: Expires = None,
    state_dir: StateDir = None,
    nats: Nats = None,
) -> None:
    """Replace the tokens with a label by a new one, and print it, once.

    If the operator's file has one of the old tokens, it gets the new one.
    Without --expires it is valid for as long as the youngest of them was.
    """
    from countless.server import tokens

    expires_in, overlap_s = _seconds(expires), require_duration("overlap", overlap, "0s", "365d")
    old: set[bytes] = set()

    def replace(store: "TokenStore") -> str:
        nonlocal old
        new, old = tokens.successor(store, label, expires_in)
        return new

    place = _Place(state_dir, nats)
    new = place.show_new(replace)
    place.end_old(old, new, overlap_s)
    place.record("token rotated", scope=None, label=label, site=None, expires=expires)


@app.command(epilog="Example:  countless token revoke web-fleet")
def revoke(
    token: Annotated[str, typer.Argument(help="A label, or first digits of a hash as in the list.")],
    state_dir: StateDir = None,
    nats: Nats = None,
) -> None:
    """Revoke tokens, and end the connections that they have opened.

    Exits with 1 if there is no such token.
    """
    if not token:  # a shell variable that is not set: it would match every token without a label
        raise InvalidParameter("token", token, "a label, or the first digits of a hash")
    place = _Place(state_dir, nats)
    revoked = place.change(lambda store: store.revoke(token))
    print(f"{revoked} revoked")
    if not revoked:
        raise typer.Exit(1)
    place.record("token revoked", scope=None, label=token, site=None, expires=None)


def _seconds(expires: str | None) -> float | None:
    return None if expires is None else require_duration("expires", expires, "1s", "36500d")


class _Place:
    """The storage of tokens: a state directory, or a broker."""

    def __init__(self, state_dir: Path | None, nats: str | None) -> None:
        self._directory = state_dir or Path("countless-state")
        self._nats = nats

    def change(self, work: "Callable[[TokenStore], T]", creates: bool = False) -> T:
        from countless.server.app import require_nats
        from countless.server.settings import STATE_FILE
        from countless.server.storage.backup import require_not_lost
        from countless.server.storage.sqlite_store import SqliteStore

        if self._nats:
            require_nats()
            from countless.server.cluster.tokens import change_tokens

            return change_tokens(self._nats, work)
        file = self._directory / STATE_FILE
        require_not_lost(file)
        if not file.exists():
            _require_meant(file, creates)
        with closing(SqliteStore(file)) as store:
            return work(store)

    def show_new(self, make: "Callable[[TokenStore], str]", creates: bool = False) -> str:
        """Print the token that `make` creates. It is revoked if it cannot be printed."""
        from countless.server.tokens import digest

        new = self.change(make, creates)
        try:
            print(new, flush=True)
        except OSError as error:
            self.change(lambda store: store.revoke(digest(new).hex()[:12]))
            raise OSError(error.errno, error.strerror, "standard output") from None
        return new

    def end_old(self, old: set[bytes], new: str, overlap_s: float) -> None:
        """The operator's file gets the new token first: local commands must not be locked out."""
        from countless.server import tokens
        from countless.server.storage.base import StoreError

        try:
            if path := tokens.replace_in_file(self._directory, old, new):
                typer.echo(f"countless: {path} now holds the new token", err=True)
            self.change(lambda store: tokens.expire_all(store, old, overlap_s))
        except (StoreError, OSError) as error:
            raise StoreError(f"the new token is valid, but so are the old ones: run it again; {error}") from None

    def record(self, event: str, **fields: str | None) -> None:
        """In the audit log of the state directory; a broker has none."""
        from countless.server.audit import AuditLog, shell_user

        if not self._nats:
            AuditLog(self._directory).record(event, shell_user(), **fields)


def _require_meant(file: Path, creates: bool) -> None:
    """No coordinator has used the directory yet, so a token there may be one that no coordinator ever sees."""
    directory = file.parent.absolute()
    if not creates:
        allowed = f"the directory of a coordinator: there is no {file.name} in it. Give it with --state-dir"
        raise InvalidParameter("state_dir", str(directory), allowed)
    typer.echo(
        f"countless: no coordinator has used {directory} yet: the token works once one starts with this state_dir",
        err=True,
    )


def _row(each: "Token") -> str:
    expiry = "expires" if each.valid_at(time()) else "expired"
    times = (f"created {_minute(each.created)}", f"{expiry} {_minute(each.expires)}", f"used {_minute(each.last_used)}")
    return "\t".join((each.scope, each.label, each.site or "", each.fingerprint, *times))


def _minute(second: int | None) -> str:
    return "never" if second is None else f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%MZ}"
