"""A coordinator that tells a site to name no new labels: their events are in the overflow label, and none is lost."""

from collections import Counter
from threading import RLock

from countless.client.families.local_family import LocalFamily
from countless.client.kinds.family import FamilyMember
from countless.client.session.members import SessionMembers
from countless.core.family.messages import OVERFLOW, UpMessage
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.messages import SiteId
from countless.wire.families import FamilyLabels, FamilyReport, LabelCap
from countless.wire.frames import UpItem
from countless.wire.keys import FAMILY, Key

SITE_ID = SiteId("here", 1)
RULE = FamilyRule(LABELS, 0.1)


class Session:
    """Its families, and what a coordinator learns from them on the present stream."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.families = SessionMembers(FAMILY, self.lock, lambda: None, lambda: 0.0)
        self.members: dict[Key, FamilyMember] = {}
        self.known: Counter[tuple[str, str]] = Counter()
        self.connect()

    def family(self, name: str, rule: FamilyRule = RULE, cap: int = 10) -> LocalFamily:
        key = Key(FAMILY, name)
        family = LocalFamily(key, rule, cap, self.lock, self._deliver)
        self.members[key] = FamilyMember(family)
        self.families.add(self.members[key], SITE_ID)
        return family

    def _deliver(self, key: Key, messages: tuple[UpMessage, ...]) -> None:
        self.members[key].queue(messages)

    def connect(self) -> None:
        self.names: dict[str, list[str]] = {}
        self._learn(self.families.initial_items())

    def send(self) -> None:
        self._learn(self.families.drain())

    def _learn(self, items: list[UpItem]) -> None:
        for item in items:
            if isinstance(item, FamilyLabels):
                self.names.setdefault(item.family, [OVERFLOW]).extend(item.labels)
            elif isinstance(item, FamilyReport):
                names = self.names.setdefault(item.family, [OVERFLOW])
                for number, count in zip(item.counts[::2], item.counts[1::2], strict=True):
                    self.known[item.family, names[number]] = max(self.known[item.family, names[number]], count)


def test_new_labels_are_in_the_overflow_label_and_those_that_it_has_are_counted_on() -> None:
    session = Session()
    pages = session.family("pages")
    pages.add("a")
    session.send()
    pages.add("b")
    session.families.receive_all(LabelCap(0), SITE_ID)
    later = session.family("pages later")  # such as the next window
    for family in (pages, later):
        for label in ("a", "b", "c", "d"):
            family.add(label, 2)
    session.send()
    assert session.known == {
        ("pages", "a"): 3, ("pages", "b"): 3, ("pages", OVERFLOW): 4, ("pages later", OVERFLOW): 8
    }  # fmt: skip
    assert (pages.count, later.count) == (10, 8)


def test_limit_ends_with_the_stream_or_when_the_coordinator_lifts_it() -> None:
    session = Session()
    pages = session.family("pages", cap=3)
    for number, (cap, new_stream) in enumerate([(0, False), (2, False), (0, True), (100, False)]):
        session.families.receive_all(LabelCap(cap), SITE_ID)
        if new_stream:
            session.connect()
        pages.add(f"label {number}")
        session.send()
    assert session.known == {
        ("pages", OVERFLOW): 1, ("pages", "label 1"): 1, ("pages", "label 2"): 1, ("pages", "label 3"): 1
    }  # fmt: skip
    pages.add("beyond its own cap")
    session.send()
    assert session.known["pages", OVERFLOW] == 2


def test_new_incarnation_keeps_the_limit_and_all_events() -> None:
    session = Session()
    pages = session.family("pages")
    pages.add("a", 5)
    session.families.receive_all(LabelCap(0), SITE_ID)
    pages.add("b", 7)
    pages.renew(None)
    pages.add("c", 1)
    assert (pages.counts, pages.count) == ({"a": 5, OVERFLOW: 8}, 13)


def test_distributions_are_not_limited() -> None:
    session = Session()
    session.families.receive_all(LabelCap(0), SITE_ID)
    latency = session.family("ms", FamilyRule(VALUES, 0.1, 0.1))
    latency.add("7")
    session.send()
    assert session.known == {("ms", "7"): 1}
