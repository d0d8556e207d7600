"""Bearer tokens that all coordinators behind a broker share: digests under one key of their bucket, and a copy here."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from countless.server.cluster.broker import Bucket, connect, open_both
from countless.server.storage.base import Token, TokenStore

T = TypeVar("T")
_KEY = "tokens"


class NatsTokens:
    """As far as tokens go, a store; what is asked of it is answered from the copy."""

    def __init__(self) -> None:
        self._tokens: dict[bytes, Token] = {}
        self._revision = 0

    async def refresh(self, bucket: Bucket) -> None:
        """Look whether somebody has changed them."""
        value, revision = await bucket.get(_KEY)
        if revision != self._revision:
            self._tokens = {token.digest: token for token in msgspec.json.decode(value or b"[]", type=list[Token])}
            self._revision = revision

    async def write(self, bucket: Bucket) -> bool:
        """Unless somebody else has changed them meanwhile."""
        return await bucket.put(_KEY, msgspec.json.encode(self.tokens()), self._revision)

    def add_token(self, token: Token) -> None:
        """One more."""
        self._tokens[token.digest] = token

    def token(self, digest: bytes) -> Token | None:
        """The token with this digest, if there is one."""
        return self._tokens.get(digest)

    def has_tokens(self) -> bool:
        """Whether there is any."""
        return bool(self._tokens)

    def tokens(self) -> list[Token]:
        """All of them."""
        return sorted(self._tokens.values(), key=lambda token: (token.created, token.label))

    def revoke(self, label: str) -> int:
        """Take back the tokens of this label; how many there were."""
        kept = {digest: token for digest, token in self._tokens.items() if token.label != label}
        revoked, self._tokens = len(self._tokens) - len(kept), kept
        return revoked


def change_tokens(url: str, change: Callable[[TokenStore], T]) -> T:
    """From outside, beside running coordinators: they know within a quarter of their lease."""

    async def run() -> T:
        client = await connect(url)
        try:
            bucket = await open_both(client)
            while True:
                tokens = NatsTokens()
                await tokens.refresh(bucket)
                result = change(tokens)
                if await tokens.write(bucket):
                    return result
        finally:
            await client.close()

    return asyncio.run(run())
