"""Bearer tokens: how they are made, rotated and stored, and the operator's first one.

A coordinator allows nothing without a token (`http/access/auth.py`). So the first start makes one for the operator, in
the state directory, where only the user of the coordinator and root can read it.
"""

import secrets
from hashlib import sha256
from math import inf
from pathlib import Path
from time import time

from countless.errors import InvalidParameter
from countless.server.storage.base import StoreError, Token, TokenStore
from countless.token_file import OPERATOR_TOKEN_FILE, SCOPES, read_token, write_token

FIRST_LABEL = "first start"
RESTORED_LABEL = "after a restore"


def digest(token: str) -> bytes:
    """Hash a token for storage. A token has 256 random bits, so an unsalted hash can't be inverted."""
    return sha256(token.encode()).digest()


def new_token(
    store: TokenStore, scope: str, label: str, site: str | None = None, expires_in: float | None = None
) -> str:
    """Create a token. Only its digest is stored: the returned text cannot be recovered."""
    text, token = _generate(scope, label, site, expires_in)
    store.add_token(token)
    return text


def _generate(scope: str, label: str, site: str | None = None, expires_in: float | None = None) -> tuple[str, Token]:
    if scope not in SCOPES:
        raise InvalidParameter("scope", scope, f"one of: {', '.join(SCOPES)}")
    if site is not None and scope != "site":
        raise InvalidParameter("site", site, message="site can only be used with scope site")
    text, now = f"countless-{scope}-{secrets.token_urlsafe(32)}", int(time())
    expires = None if expires_in is None else now + max(1, int(expires_in))
    return text, Token(digest(text), scope, site, label, now, expires)


def successor(store: TokenStore, label: str, expires_in: float | None = None) -> tuple[str, set[bytes]]:
    """A new token in place of those with this label; it, and their digests. They are valid until `expire_all`.

    Without `expires_in` it is valid for as long as the youngest of them was.
    """
    now = time()
    former = [token for token in store.tokens() if token.label == label and token.valid_at(now)]
    if not former:
        raise InvalidParameter("label", label, "the label of a valid token")
    if len({(token.scope, token.site) for token in former}) > 1:
        message = f"can't rotate label {label!r}: its tokens differ in scope or site; revoke them and create new ones"
        raise InvalidParameter("label", label, message=message)
    youngest = max(former, key=lambda token: (token.created, token.expires or inf))
    if expires_in is None and youngest.expires is not None:
        expires_in = youngest.expires - youngest.created
    return new_token(store, youngest.scope, label, youngest.site, expires_in), {token.digest for token in former}


def expire_all(store: TokenStore, digests: set[bytes], overlap_s: float) -> None:
    second = int(time() + overlap_s)
    for each in digests:
        store.expire(each, second)


def has_operator(store: TokenStore) -> bool:
    now = time()
    return any(token.scope == "operator" and token.valid_at(now) for token in store.tokens())


def first_operator_token(store: TokenStore, directory: Path) -> Path | None:
    """Make a token for the operator unless there is a valid one; the file that has it, or None."""
    path = directory / OPERATOR_TOKEN_FILE
    if has_operator(store):
        return None
    _make_operators(store, path, FIRST_LABEL)
    return path


def _make_operators(store: TokenStore, path: Path, label: str) -> None:
    text, token = _generate("operator", label)
    try:
        write_token(path, text)  # before it is stored: if we are killed in between, the next start makes another
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from None
    store.add_token(token)


def after_restore(store: TokenStore, former: list[Token], directory: Path) -> tuple[list[Token], Path | None]:
    """A copy knows the tokens of its time. Add those that the `former` state had, and what it knew of their expiry.

    Returns the tokens that the former state had no more, which are valid again, and the operator's file if it got a new
    token, because its own is not in the store.
    """
    known = {token.digest: token for token in former}
    again = [token for token in store.tokens() if token.digest not in known and former]
    for token in former:
        if store.token(token.digest) is None:
            store.add_token(token)
        elif token.expires is not None:
            store.expire(token.digest, token.expires)
    path = directory / OPERATOR_TOKEN_FILE
    if _is_valid(store, path):
        return again, None
    _make_operators(store, path, RESTORED_LABEL)
    return again, path


def _is_valid(store: TokenStore, path: Path) -> bool:
    try:
        token = store.token(digest(read_token(path)))
    except InvalidParameter:  # there is none
        return False
    return token is not None and token.valid_at(time())


def replace_in_file(directory: Path, former: set[bytes], token: str) -> Path | None:
    """Put a rotated token into the operator's file, if that has one of the former ones."""
    path = directory / OPERATOR_TOKEN_FILE
    if not path.exists() or digest(read_token(path)) not in former:
        return None
    write_token(path, token)
    return path
