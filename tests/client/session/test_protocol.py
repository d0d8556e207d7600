"""The conversation of a client, with a clock that is a number and a line that is a list."""

from collections import Counter
from threading import RLock

import pytest

from countless.client.local_counter import LocalCounter
from countless.client.session.protocol import Talk
from countless.client.transport.websocket import ConnectionLost
from countless.core.messages import Report, SiteId
from countless.core.site import Site
from countless.randomness import SeededRandom
from countless.wire.frames import HelloAck, SyncAck, UpItem, decode_up, encode_frames

LIFE = SiteId("here", 1)
HEARTBEAT = 10.0


class Story:
    """A talk that has been welcomed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        self.said: list[UpItem] = []
        monkeypatch.setattr("countless.client.session.protocol.monotonic", lambda: self.time)
        lock = RLock()
        self._talk = Talk(LIFE, lock, lambda: None)
        site = Site("hits", LIFE, SeededRandom(1))
        self._talk.include("hits", LocalCounter(site, lock, lambda site, messages: self._talk.queue("hits", messages)))
        self._speaking = self._talk.converse(lambda frame: self.said.extend(decode_up(frame)), lambda: None)
        next(self._speaking)
        self.pause = self.hear(HelloAck(1, int(HEARTBEAT * 1000)))
        self.said.clear()

    def hear(self, *items: HelloAck | SyncAck) -> float:
        return self._speaking.send(list(encode_frames(items)))

    def report(self) -> None:
        self._talk.queue("hits", (Report("hits", 0, 1, 1),))

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.pause = self._speaking.send([])

    def tally(self) -> dict[str, int]:
        return dict(Counter(type(item).__name__ for item in self.said))


def test_who_has_nothing_to_say_gives_a_sign_of_life_each_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(monkeypatch)
    for _ in range(5):
        assert story.pause == HEARTBEAT
        story.wait(HEARTBEAT)
        story.pause = story.hear(SyncAck(0))
    assert story.tally() == {"Sync": 5}


def test_who_reports_all_the_time_asks_once_in_a_heartbeat_whether_anybody_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(monkeypatch)
    asked = 0
    for _ in range(100):  # ten heartbeats
        story.report()
        story.wait(1.0)
        if story.tally().get("Sync", 0) > asked:
            asked += 1
            story.pause = story.hear(SyncAck(0))  # all that the coordinator ever says
    assert story.tally()["Sync"] == asked == 10


def test_a_coordinator_that_does_not_answer_for_three_heartbeats_has_fallen_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(monkeypatch)
    for _ in range(30):
        story.report()
        story.wait(1.0)
    assert story.tally()["Sync"] == 3
    with pytest.raises(ConnectionLost, match="fallen silent"):
        story.wait(1.0)
