"""`flush` of a session with a family: what was counted has arrived with its labels when it returns."""

from threading import RLock

from countless.client.families.local_family import LocalFamily
from countless.client.kinds.family import FamilyMember
from countless.client.session.protocol import SiteSession
from countless.client.surroundings import ClientSurroundings
from countless.core.family.rule import LABELS, FamilyRule
from countless.core.messages import SiteId
from countless.wire.families import FamilyJoin, FamilyLabels, FamilyReport, FamilyResend
from countless.wire.frames import DownItem, Hello, HelloAck, Sync, SyncAck, UpItem, decode_up, encode_frames
from countless.wire.keys import FAMILY, Key

PAGES = Key(FAMILY, "pages")


class Stream:
    def __init__(self) -> None:
        self.time = 0.0
        lock = RLock()
        self.session = SiteSession(SiteId("here", 1), lock, lambda: None, ClientSurroundings(lambda: self.time))
        rule = FamilyRule(LABELS, 0.1)
        self.family = LocalFamily(PAGES, rule, 10, lock, lambda key, messages: self.member.queue(messages))
        self.member = FamilyMember(self.family)
        self.session.add(self.member)

    def connect(self) -> list[UpItem]:
        self._sent: list[UpItem] = []
        self._steps = self.session.run(lambda frame: self._sent.extend(decode_up(frame)), lambda: None)
        next(self._steps)
        return self.receive(HelloAck(1, 10_000))

    def receive(self, *items: DownItem) -> list[UpItem]:
        """What it sends then, at once or a little later."""
        self._steps.send(list(encode_frames(items)))
        self.time += 1.0
        self._steps.send([])
        sent, self._sent[:] = list(self._sent), []
        return [item for item in sent if not isinstance(item, Hello)]


def test_what_was_counted_before_the_connection_follows_the_join() -> None:
    stream = Stream()
    stream.family.add("a", 30)
    stream.session.request_ack(1)
    join, labels, report, sync = stream.connect()
    assert isinstance(join, FamilyJoin)
    assert (join.total, join.reported) == (30, 0)  # so the coordinator misses nothing, and does not ask
    assert (labels, report, sync) == (FamilyLabels("pages", ("a",)), FamilyReport("pages", 0, 30, (1, 30)), Sync(1))


def test_acknowledgement_counts_only_behind_the_reports_that_were_asked_for_again() -> None:
    stream = Stream()
    stream.family.add("a", 30)
    stream.connect()
    stream.family.add("b", 10)
    stream.session.request_ack(1)
    join, *_, sync = stream.connect()  # the first stream was cut, perhaps before "a" had arrived
    assert isinstance(join, FamilyJoin)
    assert (join.total, join.reported, sync) == (40, 40, Sync(1))
    again = stream.receive(FamilyResend("pages"), SyncAck(1))
    assert stream.session.acked == 0
    expected = [FamilyLabels("pages", ("a", "b")), FamilyReport("pages", 0, 40, (1, 30, 2, 10)), Sync(1)]
    assert again == expected
    stream.receive(SyncAck(1))
    assert stream.session.acked == 1
