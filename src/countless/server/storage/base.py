"""The common part of all stores: their error, and bearer tokens. `rows.py` has the state.

The core's rule is *save before send* (design/decisions/save-before-send.md): a message that the core returned may leave
the process only when the state behind it is saved. One input changes the count of one site, so a save is a list of
changes, and many inputs share one save.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from countless.errors import CountlessError


class StoreError(CountlessError):
    """The state cannot be read or written as it is. A save that raises this may be tried again."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as it is stored: the digest, never the token itself. Times are seconds since 1970."""

    digest: bytes
    scope: str
    site: str | None
    label: str
    created: int
    expires: int | None = None  # None: never
    last_used: int | None = None  # within a minute or so; None: never

    def valid_at(self, second: float) -> bool:
        return self.expires is None or second < self.expires

    @property
    def fingerprint(self) -> str:
        """The first digits of the digest, as lists and the audit log show them."""
        return self.digest.hex()[:12]

    def is_named(self, which: str) -> bool:
        return which in (self.label, self.fingerprint)


class TokenStore(Protocol):
    """Bearer tokens. Methods may be called from any thread."""

    def add_token(self, token: Token) -> None: ...

    def token(self, digest: bytes) -> Token | None: ...

    def tokens(self) -> list[Token]:
        """In the order in which they were created."""

    def revoke(self, which: str) -> int:
        """Remove the tokens with this label or fingerprint; how many there were."""

    def expire(self, digest: bytes, second: int) -> None:
        """Let a token expire then, or when it would have anyway, if that is sooner."""

    def note_uses(self, uses: Mapping[bytes, int]) -> None:
        """The last use of tokens, by their digests."""
