"""Counts that cannot be delivered, or not yet."""

import logging
import socket
from pathlib import Path
from threading import Event, RLock

import pytest

from countless.client.durable.count_file import SUFFIX, CountFile
from countless.client.durable.recovery import OrphanRecovery
from countless.client.transport.base import ConnectionLost, Received, Send
from countless.core.messages import SiteId
from countless.wire.frames import DownItem, IncarnationExpired, encode_frames
from countless.wire.keys import COUNTER, Key
from support.service import TIMEOUT_S, until


class OneAnswer:
    """A transport to a coordinator that answers the hello with one item."""

    def __init__(self, item: DownItem) -> None:
        self._frames = list(encode_frames([item]))
        self._ours, self._theirs = socket.socketpair()

    def shard_count(self) -> int:
        return 1

    def shard_of(self, key: Key) -> int:
        return 0

    def open_stream(self, shard: int) -> Send:
        self._theirs.send(b"!")
        return lambda frame: None

    def sockets(self) -> list[socket.socket]:
        return [self._ours]

    def receive(self) -> dict[int, Received]:
        self._ours.recv(1)
        return {0: list(self._frames)}

    def close_stream(self, shard: int) -> None: ...

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    abandon = close


class Unreachable(OneAnswer):
    def shard_count(self) -> int:
        raise ConnectionLost("no coordinator")


def orphan(directory: Path) -> CountFile:
    file = CountFile.create(directory, SiteId("here", 1))
    file.allocate(Key(COUNTER, "hits")).add(5)
    file.release()
    return file


def test_counts_of_an_expired_incarnation_are_kept_and_not_tried_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be in the totals already: nothing is counted twice."""
    file = orphan(tmp_path)
    caplog.set_level(logging.WARNING, "countless")
    recovery = OrphanRecovery(tmp_path, lambda site: OneAnswer(IncarnationExpired(7)), RLock())
    recovery.start()
    until(lambda: not recovery.running, "the end of the recovery")
    (message,) = caplog.messages
    assert "may be in the totals already" in message
    assert str(file.path) in message
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 1


def test_close_tries_again_what_could_not_be_delivered_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after the pause of a client that no program waits for."""
    monkeypatch.setattr("countless.client.session.reconnect.FIRST_S", 1e6)
    orphan(tmp_path)
    tried, expired = Event(), IncarnationExpired(7)

    def open_transport(site: str) -> OneAnswer:
        answer = OneAnswer(expired) if tried.is_set() else Unreachable(expired)
        tried.set()
        return answer

    recovery = OrphanRecovery(tmp_path, open_transport, RLock())
    recovery.start()
    assert tried.wait(TIMEOUT_S)
    assert recovery.stop(TIMEOUT_S)


def test_close_says_that_counts_are_left_for_the_next_process(tmp_path: Path) -> None:
    file = orphan(tmp_path)
    recovery = OrphanRecovery(tmp_path, lambda site: Unreachable(IncarnationExpired(7)), RLock())
    recovery.start()
    assert not recovery.stop(0.0)
    until(lambda: not recovery.running, "the end of the recovery")
    assert list(tmp_path.glob(f"*{SUFFIX}")) == [file.path]
