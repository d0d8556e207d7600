"""`client.counter(name, family=True, per=...)` without a coordinator: which window has an event, files and forks."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import RLock

import pytest

import countless
from countless.client.client import Client
from countless.client.durable.count_file import CountFile
from countless.client.durable.family import FamilyRecords, families_in
from countless.client.durable.record_names import RecordName
from countless.client.durable.word_file import CHUNK_BYTES
from countless.client.families.local_family import LocalFamily, LocalFamilyWindows
from countless.client.surroundings import REAL
from countless.client.transport.endpoint import Endpoint
from countless.core.family.messages import UpMessage
from countless.core.family.rule import LABELS, FamilyRule
from countless.core.messages import SiteId
from countless.errors import InvalidParameter
from countless.wire.families import KnownFamily
from countless.wire.keys import ALL, FAMILY, Key

MINUTE = 30_000_000  # by its number
PAGES = Key(FAMILY, "pages", "minute", ALL)
RULE = FamilyRule(LABELS, 0.1)


def name(minute: int) -> str:
    return str(PAGES.window(MINUTE + minute))


class RecordedWindows:
    """The windows of one family, as a client keeps them, and the families of all that have not left."""

    def __init__(self, file: CountFile | None = None) -> None:
        self.now, self.monotonic = MINUTE * 60.0, 0.0
        self.families: dict[str, LocalFamily] = {}
        self.file = file
        self.lock = RLock()
        self.windows = LocalFamilyWindows(
            PAGES, RULE, 100, 0.0, self.lock, clock=lambda: self.now, new=self._new, remove=self._remove
        )

    def _new(self, key: Key) -> LocalFamily:
        records = None if self.file is None else partial(FamilyRecords, key, RULE, self.file)
        family = self.families[str(key)] = LocalFamily(key, RULE, 100, self.lock, _ignore, records)
        return family

    def _remove(self, key: Key) -> None:
        self.families.pop(str(key)).forget()

    def show(self, minute: int) -> None:
        self.monotonic += (MINUTE + minute) * 60.0 - self.now
        self.now = (MINUTE + minute) * 60.0

    def tick(self) -> list[int]:
        return [period - MINUTE for period in self.windows.tick(self.monotonic)[1]]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        return {text: family.counts for text, family in self.families.items()}


def _ignore(key: Key, messages: tuple[UpMessage, ...]) -> None:
    pass


def test_event_belongs_to_the_window_of_the_clock_and_to_none_that_is_finished() -> None:
    recorded = RecordedWindows()
    windows = recorded.windows
    windows.add("a", 2)
    assert recorded.tick() == []
    recorded.show(1)
    windows.add("a")
    windows.add_overflow(3)
    assert (windows.count, windows.count_of("a"), windows.count_of("")) == (4, 1, 3)
    assert recorded.tick() == [0]
    recorded.show(0)  # the clock is put back: window 0 is finished
    windows.add("b")
    assert recorded.counts == {name(0): {"a": 2}, name(1): {"a": 1, "": 3, "b": 1}}
    windows.left(MINUTE)
    assert [*recorded.families] == [name(1)]
    recorded.show(7)
    assert (recorded.tick(), windows.count, windows.seconds_to_tick(recorded.monotonic)) == ([1], 0, float("inf"))
    windows.close()
    with pytest.raises(InvalidParameter, match="has not been closed"):
        windows.add("a")
    assert recorded.tick() == []


def test_file_does_not_grow_with_the_number_of_windows_and_is_delivered_as_it_was_counted(tmp_path: Path) -> None:
    file = CountFile.create(tmp_path, SiteId("here", 1))
    recorded = RecordedWindows(file)
    for minute in range(60):
        recorded.show(minute)
        for label in range(100):
            recorded.windows.add(f"label {label:3}", 1 + minute)
        for finished in recorded.tick():
            recorded.windows.left(MINUTE + finished)
    assert file.path is not None
    assert file.path.stat().st_size <= 2 * CHUNK_BYTES
    with file.new_incarnation(7):  # the coordinator knows more of the total than of its labels
        recorded.families[name(59)].renew(KnownFamily(1000, counts={"label   0": 10}))
    recorded.windows.add("label   1", 5)
    file.release()
    orphan = CountFile.open_orphan(file.path)
    assert orphan is not None
    (left,) = families_in(orphan)
    assert (str(left.key), left.total, sum(left.counts.values())) == (name(59), 5005, 5995)
    assert (left.counts["label   0"], left.counts["label   1"], left.counts["label   2"]) == (50, 65, 60)
    orphan.delete()


@pytest.mark.parametrize("renewed", [False, True])
def test_process_that_is_killed_while_a_window_is_forgotten_leaves_a_file_that_can_be_read(
    renewed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything in it is delivered already, and it may be delivered again."""
    for killed_after in range(5):
        file = CountFile.create(tmp_path, SiteId("here", 1 + killed_after))
        recorded = RecordedWindows(file)
        for label in "abc":
            recorded.windows.add(label, 7)
        if renewed:  # without the labels that are freed, less is left than the earlier incarnation has delivered
            with file.new_incarnation(99):
                recorded.families[name(0)].renew(KnownFamily(20, counts={}))
        original, freed = file.free, 0

        def free(
            key: RecordName, original: Callable[[RecordName], None] = original, killed_after: int = killed_after
        ) -> None:
            nonlocal freed
            if freed == killed_after:
                raise KeyboardInterrupt
            freed += 1
            original(key)

        monkeypatch.setattr(file, "free", free)
        recorded.show(1)
        (finished,) = recorded.tick()
        with suppress(KeyboardInterrupt):
            recorded.windows.left(MINUTE + finished)
        file.release()
        assert file.path is not None
        orphan = CountFile.open_orphan(file.path)
        assert orphan is not None
        left = families_in(orphan)
        assert [sum(each.counts.values()) for each in left] == [7 * (3 - freed)][: 4 - freed]
        assert [each.total for each in left] == [max(0, 7 * (3 - freed) - 20 * renewed)][: 4 - freed]
        orphan.delete()


@pytest.fixture
def client(unused_url: str) -> Iterator[Client]:
    client = Client(
        Endpoint.parse(unused_url), None, "here", surroundings=REAL._replace(wall_clock=lambda: MINUTE * 60.0)
    )
    yield client
    client.close(0)


def test_family_and_distribution_have_one_calendar(client: Client) -> None:
    pages = client.counter("pages", family=True, per="minute")
    pages.labels(page="/a").add(3)
    pages.add(4)
    assert (pages.count, pages.labels(page="/a").count) == (4, 3)
    assert pages is client.counter("pages", family=True, per="minute", tz="UTC", anchor=0)
    latency = client.distribution("ms", per="minute")
    latency.observe(17)
    assert (latency.count, client.distribution("ms", per="minute").count) == (1, 1)
    for again in (
        lambda: client.counter("pages", family=True),
        lambda: client.counter("pages", family=True, per="hour"),
        lambda: client.counter("pages", per="minute"),
        lambda: client.distribution("ms"),
        lambda: client.distribution("ms", per="minute", tz="Europe/Berlin"),
        lambda: client.counter("other", family=True, tz="Europe/Berlin"),
        lambda: client.counter("other", family=True, per="year"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidParameter):
            again()
    assert client.counter("other").count == 0


def test_disabled_client_counts_without_windows(monkeypatch: pytest.MonkeyPatch, unused_url: str) -> None:
    monkeypatch.setenv("COUNTLESS_DISABLE", "1")
    with countless.connect(unused_url) as client:
        client.counter("pages", family=True, per="hour").labels(page="/a").add(3)
        assert client.counter("pages", family=True, per="hour").labels(page="/a").count == 3
