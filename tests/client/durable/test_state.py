"""Durable counters: their file has what they have counted in the present incarnation."""

from pathlib import Path
from shutil import copyfile, rmtree
from threading import RLock

import pytest

from countless.client.durable.count_file import CountFile
from countless.client.durable.state import DurableState
from countless.client.transport.base import Transport
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketTransport
from countless.core.messages import Report, SiteId, Snapshot, StartRound, UpMessage
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.randomness import SeededRandom
from countless.wire.keys import COUNTER, Key
from support.service import until

FIRST, SECOND = SiteId("here", 1), SiteId("here", 2)


def unreachable(site: str) -> Transport:
    return WebSocketTransport(Endpoint.parse("http://127.0.0.1:9"))


HITS = Key(COUNTER, "hits")


class DurableHits:
    """A state directory with one counter, and the messages that it has sent."""

    def __init__(self, directory: Path) -> None:
        self.sent: list[UpMessage] = []
        self.durable = DurableState(directory, FIRST, unreachable, RLock())
        self.counter = self.durable.counter(HITS, Site("hits", FIRST, SeededRandom(1)), RLock(), self._deliver)

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.sent += messages

    def path(self) -> Path | None:
        path = self.durable.debug_state()["path"]
        assert path is None or isinstance(path, Path)
        return path

    def found(self) -> tuple[SiteId, Snapshot, tuple[UpMessage, ...]]:
        """What the next process would send if this one were killed now."""
        path = self.path()
        assert path is not None
        file = CountFile.open_orphan(Path(copyfile(path, path.with_suffix(".copy"))))
        assert file is not None
        file.release()
        record = file.records(Key)[Key(COUNTER, "hits")]
        return file.site_id, record.snapshot("hits"), record.resend("hits")


def test_messages_are_in_the_file_before_they_are_sent(tmp_path: Path) -> None:
    hits = DurableHits(tmp_path)
    hits.counter.add()
    hits.counter.add(4)
    assert hits.found() == (FIRST, Snapshot("hits", 0, 5), (Snapshot("hits", 0, 0), hits.sent[-1]))
    assert hits.counter.receive(StartRound("hits", 3, EveryNth(10))) == (Snapshot("hits", 3, 5),)
    for _ in range(6):
        hits.counter.add()
    assert hits.sent[-1] == Report("hits", 3, 10, 1)
    assert hits.found() == (FIRST, Snapshot("hits", 3, 11), (Snapshot("hits", 3, 5), Report("hits", 3, 10, 1)))
    hits.durable.close(True, 0)


@pytest.mark.parametrize(("delivered", "rest"), [(None, 0), (0, 30), (12, 18), (30, 0)])
def test_new_incarnation_starts_with_the_undelivered_events(tmp_path: Path, delivered: int | None, rest: int) -> None:
    hits = DurableHits(tmp_path)
    hits.counter.add(20)
    for _ in range(10):
        hits.counter.add()
    with hits.durable.new_incarnation(2):
        hits.counter.reset(SECOND, delivered)
    for more in range(3):
        assert hits.counter.count == rest + 6 * more
        assert hits.found()[:2] == (SECOND, Snapshot("hits", 0, rest + 6 * more))
        hits.counter.add()
        hits.counter.add(5)
    hits.durable.close(True, 0)


@pytest.mark.parametrize("room", [True, False], ids=["a file", "no room for one"])
def test_forked_child_counts_in_a_file_of_its_own_or_in_memory(tmp_path: Path, room: bool) -> None:
    directory = tmp_path / "state"
    hits = DurableHits(directory)
    hits.counter.add(20)
    until(lambda: not hits.durable.debug_state()["recovering"])  # a real fork would have no such thread
    if not room:
        rmtree(directory)
        directory.write_text("no directory any more")
    hits.durable.after_fork(SECOND, {HITS: hits.counter})
    hits.counter.reset(SECOND, None)
    hits.counter.add()
    hits.counter.add(2)
    assert hits.counter.count == 3
    assert (hits.path() is not None) == room
    if room:
        assert hits.found()[:2] == (SECOND, Snapshot("hits", 0, 3))
    hits.durable.close(False, 0)
    if room:
        files = [CountFile.open_orphan(path) for path in sorted(directory.glob("*.counts"))]
        assert [file and file.records(Key)[Key(COUNTER, "hits")].count for file in files] == [20, 3]
