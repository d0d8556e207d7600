"""Bearer tokens that all coordinators behind a broker share: digests under one key of the bucket, and a copy here."""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from countless.server.cluster.broker import Bucket, connected_bucket
from countless.server.storage.base import StoreError, Token, TokenStore
from countless.server.tokens import first_operator_token, has_operator
from countless.token_file import OPERATOR_TOKEN_FILE

T = TypeVar("T")
_KEY = "tokens"


class BrokerTokens:
    """Implements `TokenStore` on the copy. `refresh` reads the copy from the bucket, `write` writes it back."""

    def __init__(self) -> None:
        self._tokens: dict[bytes, Token] = {}
        self._revision = 0

    async def refresh(self, bucket: Bucket) -> None:
        value, revision = await bucket.get(_KEY)
        if revision != self._revision:
            self._tokens = {token.digest: token for token in msgspec.json.decode(value or b"[]", type=list[Token])}
            self._revision = revision

    async def write(self, bucket: Bucket) -> bool:
        """False if the bucket has changed since `refresh`."""
        return await bucket.compare_and_set(_KEY, msgspec.json.encode(self.tokens()), self._revision)

    def add_token(self, token: Token) -> None:
        self._tokens[token.digest] = token

    def token(self, digest: bytes) -> Token | None:
        return self._tokens.get(digest)

    def tokens(self) -> list[Token]:
        return sorted(self._tokens.values(), key=lambda token: (token.created, token.label))

    def revoke(self, which: str) -> int:
        kept = {digest: token for digest, token in self._tokens.items() if not token.is_named(which)}
        revoked, self._tokens = len(self._tokens) - len(kept), kept
        return revoked

    def expire(self, digest: bytes, second: int) -> None:
        token = self._tokens[digest]
        self._tokens[digest] = replace(token, expires=min(second, token.expires or second))

    def note_uses(self, uses: Mapping[bytes, int]) -> None:
        for digest, second in uses.items():
            if token := self._tokens.get(digest):
                self._tokens[digest] = replace(token, last_used=max(second, token.last_used or second))


def change_tokens(url: str, change: Callable[[TokenStore], T]) -> T:
    """Apply a change from outside, again if another change came first. Running coordinators read it with their next
    heartbeat.
    """

    async def run() -> T:
        async with connected_bucket(url) as bucket:
            while True:
                tokens = BrokerTokens()
                await tokens.refresh(bucket)
                before = tokens.tokens()
                result = change(tokens)
                if tokens.tokens() == before or await tokens.write(bucket):
                    return result

    return asyncio.run(run())


def first_token(url: str, directory: Path) -> Path | None:
    """As `first_operator_token`, for coordinators that may start at the same time.

    One of them stores its token. The others must not leave a file with a token that was not stored; those that have
    the same directory start one after another, so that none replaces the file of the one that is first.
    """
    if change_tokens(url, has_operator):
        return None
    with _locked(directory):
        made: Path | None = None

        def make(store: TokenStore) -> Path | None:
            nonlocal made
            former, made = made, first_operator_token(store, directory)
            if former is not None and made is None:  # another coordinator came first
                former.unlink(missing_ok=True)
            return made

        return change_tokens(url, make)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    path = directory / f"{OPERATOR_TOKEN_FILE}.lock"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
