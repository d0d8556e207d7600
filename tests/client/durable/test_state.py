"""Meters that are written down: what their file tells is what they have counted in this life."""

from pathlib import Path
from shutil import rmtree
from threading import RLock

import pytest

from countless.client.durable.count_file import CountFile
from countless.client.durable.state import Keeper
from countless.client.transport.websocket import ConnectionLost, WebSocketConnection
from countless.core.messages import Report, SiteId, Snapshot, StartRound, UpMessage
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.randomness import SeededRandom

LIFE = SiteId("here", 1)


def nobody_there() -> WebSocketConnection:
    raise ConnectionLost("nobody there")


def site_with(count: int) -> Site:
    return Site("hits", LIFE, SeededRandom(1), count=count)


class Kept:
    """A keeper with one meter, and what the meter has said."""

    def __init__(self, directory: Path) -> None:
        self.said: list[UpMessage] = []
        self.keeper = Keeper(directory, LIFE, nobody_there, RLock())
        self.meter = self.keeper.meter(site_with(0), RLock(), self._deliver)

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.said += messages

    def found(self) -> tuple[SiteId, Snapshot, tuple[UpMessage, ...]]:
        """What an heir would say if the process died now."""
        file = self.keeper._file
        return file.site_id, file.cells["hits"].hello("hits"), file.cells["hits"].resume("hits")


def test_what_was_said_is_written_down_before(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.meter.add()
    kept.meter.add(4)
    assert kept.found() == (LIFE, Snapshot("hits", 0, 5), (Snapshot("hits", 0, 0), kept.said[-1]))
    answer = kept.meter.receive(StartRound("hits", 3, EveryNth(10)))
    assert answer == (Snapshot("hits", 3, 5),)
    for _ in range(6):
        kept.meter.add()
    assert kept.said[-1] == Report("hits", 3, 10, 1)
    assert kept.found() == (LIFE, Snapshot("hits", 3, 11), (Snapshot("hits", 3, 5), Report("hits", 3, 10, 1)))
    kept.keeper.end(True, 0)


@pytest.mark.parametrize(("settled", "rest"), [(None, 0), (0, 30), (12, 18), (30, 0)])
def test_another_life_begins_with_what_was_not_settled(tmp_path: Path, settled: int | None, rest: int) -> None:
    kept = Kept(tmp_path)
    kept.meter.add(20)
    for _ in range(10):
        kept.meter.add()
    with kept.keeper.another_life(2):
        kept.meter.reborn(site_with, settled)
    for more in range(3):
        assert kept.meter.count == rest + 6 * more
        assert kept.found()[:2] == (SiteId("here", 2), Snapshot("hits", 0, rest + 6 * more))
        kept.meter.add()
        kept.meter.add(5)
    kept.keeper.end(True, 0)


@pytest.mark.parametrize("room", [True, False], ids=["a file", "no room for one"])
def test_a_child_counts_in_a_file_of_its_own_or_in_memory(tmp_path: Path, room: bool) -> None:
    directory = tmp_path / "state"
    kept = Kept(directory)
    kept.meter.add(20)
    if kept.keeper._heir is not None:  # it looks for what others left behind; a real fork would have no such thread
        kept.keeper._heir._thread.join()
    parents = kept.keeper._file
    if not room:
        rmtree(directory)
        directory.write_text("no directory any more")
    kept.keeper.move(SiteId("here", 2), {"hits": kept.meter})
    kept.meter.reborn(site_with, None)
    kept.meter.add()
    kept.meter.add(2)
    assert kept.meter.count == 3
    assert kept.found()[:2] == (SiteId("here", 2), Snapshot("hits", 0, 3))
    assert parents.cells["hits"].count == 20
    kept.keeper.end(False, 0)
    if room:
        files = [CountFile.adopt(path) for path in sorted(directory.iterdir())]
        assert [file and file.cells["hits"].count for file in files] == [20, 3]
