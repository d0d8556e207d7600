"""The operator's first token, when several coordinators behind one broker start at the same time."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread

import pytest

from countless.server.cluster import tokens
from countless.server.cluster.tokens import BrokerTokens, change_tokens, first_token
from countless.server.tokens import digest, new_token
from countless.token_file import OPERATOR_TOKEN_FILE, read_token
from support.service import TIMEOUT_S

BLOCKED_S = 0.2  # a start that waits for the directory would wait without end


class FakeBucket:
    """Keys with compare-and-set; `before_write` runs once, when a coordinator has decided what to write."""

    def __init__(self) -> None:
        self.value, self.revision = b"", 0
        self.before_write: Callable[[], None] | None = None

    async def get(self, key: str) -> tuple[bytes, int]:
        return self.value, self.revision

    async def compare_and_set(self, key: str, value: bytes, revision: int) -> bool:
        before, self.before_write = self.before_write, None
        if before is not None:
            before()
        if revision != self.revision:
            return False
        self.value, self.revision = value, self.revision + 1
        return True


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> FakeBucket:
    bucket = FakeBucket()

    @asynccontextmanager
    async def connected_bucket(url: str) -> AsyncIterator[FakeBucket]:
        yield bucket

    monkeypatch.setattr(tokens, "connected_bucket", connected_bucket)
    return bucket


def operators() -> list[bytes]:
    return change_tokens("", lambda store: [each.digest for each in store.tokens() if each.scope == "operator"])


def start_meanwhile(bucket: FakeBucket, directory: Path, seconds: float = TIMEOUT_S) -> Thread:
    """Another coordinator starts while the first one is about to store its token, which waits for it this long."""
    other = Thread(target=first_token, args=("", directory))

    def start() -> None:
        other.start()
        other.join(seconds)

    bucket.before_write = start
    return other


def test_coordinator_that_comes_second_leaves_no_file_with_an_unknown_token(bucket: FakeBucket, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    other = start_meanwhile(bucket, first)
    assert first_token("", second) is None
    other.join()
    assert operators() == [digest(read_token(first / OPERATOR_TOKEN_FILE))]
    assert not (second / OPERATOR_TOKEN_FILE).exists()


def test_coordinators_with_one_directory_have_one_token_and_its_file(bucket: FakeBucket, tmp_path: Path) -> None:
    other = start_meanwhile(bucket, tmp_path, BLOCKED_S)
    assert first_token("", tmp_path) == tmp_path / OPERATOR_TOKEN_FILE
    other.join()
    assert operators() == [digest(read_token(tmp_path / OPERATOR_TOKEN_FILE))]


def test_token_of_another_kind_that_is_stored_meanwhile_stays(bucket: FakeBucket, tmp_path: Path) -> None:
    def add() -> None:
        store = BrokerTokens()
        new_token(store, "site", "fleet")
        thread = Thread(target=change_tokens, args=("", lambda tokens: tokens.add_token(store.tokens()[0])))
        thread.start()
        thread.join()

    bucket.before_write = add
    assert first_token("", tmp_path) is not None
    assert operators() == [digest(read_token(tmp_path / OPERATOR_TOKEN_FILE))]
    assert len(change_tokens("", lambda store: store.tokens())) == 2


def test_start_after_the_first_needs_no_directory(bucket: FakeBucket, tmp_path: Path) -> None:
    assert first_token("", tmp_path / "first") is not None
    assert first_token("", tmp_path / "second") is None
    assert not (tmp_path / "second").exists()
