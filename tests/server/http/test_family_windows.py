"""Windows of families in the API: top, quantiles, counts of labels, lists of windows, and what is refused.

The reference has every event with its hour and its label; the sites that hold events back are those of production.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from starlette.testclient import TestClient

from countless.core.family.messages import LabelReport, Steps, UpMessage
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.family.site import FamilySite
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter
from countless.server.app import build_app
from countless.server.http.answers import labels
from countless.server.http.answers.labels import family_top, quantile_answer
from countless.server.http.answers.sums import parts_of, reading, top_of
from countless.server.http.answers.windows import window_answer, window_list
from countless.server.http.history.history import Recorder
from countless.server.http.history.parts import label_of_family
from countless.server.http.monitoring import ServerCollector
from countless.server.kinds.family import FamilyFields, SavedFamily, TrackedFamily, WindowedFamily
from countless.server.sessions.session_table import Session
from countless.server.sessions.tracked import Surroundings
from countless.server.settings import Settings
from countless.wire.families import (
    FamilyLeave,
    FamilyResend,
    FamilySteps,
    FamilyUpItem,
    down_message,
    join_item,
    report_items,
    sync_item,
)
from countless.wire.keys import FAMILY, Key
from support.site_server import FakeConnection, SiteServerHarness, site_server

HOUR, FIRST = 3600.0, 490_000  # by its number
EPSILON = 0.1
LABEL_NAMES = [f'{{p="{number}"}}' for number in range(8)]


class Site:
    """A session that counts with the sites of the core, a `FamilySite` for each window."""

    def __init__(
        self, harness: SiteServerHarness, session: Session, connection: FakeConnection, rule: FamilyRule
    ) -> None:
        self._harness = harness
        self._session = session
        self._connection = connection
        self._rule = rule
        self._windows: dict[str, tuple[FamilySite, dict[str, int]]] = {}  # and the numbers of its labels

    async def count(self, window: str, label: str, n: int) -> None:
        items: list[FamilyUpItem] = []
        if window not in self._windows:
            site = self._rule.site(window)
            self._windows[window] = site, {}
            items.append(join_item(self._rule, site.sync()))
        await self._send([*items, *self._items(window, self._windows[window][0].add(label, n))])

    async def leave(self, window: str) -> None:
        site, _ = self._windows[window]
        *reports, _ = site.leave()
        await self._send([*self._items(window, tuple(reports)), FamilyLeave(*sync_item(site.sync()))])
        del self._windows[window]

    @property
    def windows(self) -> list[str]:
        return sorted(self._windows)

    def _items(self, window: str, messages: tuple[UpMessage, ...]) -> list[FamilyUpItem]:
        items: list[FamilyUpItem] = []
        for message in messages:
            if isinstance(message, LabelReport):
                numbers = self._windows[window][1]
                items += report_items(window, message.round, message.total, dict(message.counts), numbers)
            else:
                items.append(sync_item(message))
        return items

    async def _send(self, items: list[FamilyUpItem]) -> None:
        while items:
            received = await self._harness.send(self._session, self._connection, *items)
            items = [
                reply
                for item in received
                if isinstance(item, FamilySteps | FamilyResend) and item.family in self._windows
                for reply in self._items(item.family, self._windows[item.family][0].receive(down_message(item)))
            ]


class World:
    """Sites that count labels for some hours, and the truth."""

    def __init__(self, harness: SiteServerHarness, seed: int) -> None:
        self.harness = harness
        self.hour = FIRST
        self.truth: Counter[tuple[int, str]] = Counter()
        self._rng = Random(seed)  # noqa: S311
        self.sites: list[Site] = []

    def clock(self) -> float:
        return self.hour * HOUR + 100.0

    async def connect(self, number: int, rule: FamilyRule) -> None:
        for each in range(number):
            self.sites.append(Site(self.harness, *await self.harness.connect(f"site {each}"), rule))

    async def count(self) -> None:
        label = LABEL_NAMES[min(7, int(self._rng.paretovariate(0.8)) - 1)]
        hour = self.hour - (self._rng.random() < 0.1)  # some clocks are late
        n = self._rng.choice((1, 3, 40))
        window = f"pages@hour:{hour}"
        site = self._rng.choice(self.sites)
        if window in site.windows or hour == self.hour:
            await site.count(window, label, n)
            self.truth[hour, label] += n

    async def next_hour(self) -> None:
        self.hour += 1
        for site in self.sites:
            for window in site.windows:
                if int(window.rpartition(":")[2]) < self.hour - 1:
                    await site.leave(window)
        await self.harness.advance(1)

    def counted(self, *hours: int) -> Counter[str]:
        total: Counter[str] = Counter()
        for (hour, label), n in self.truth.items():
            total[label] += n if hour in hours or not hours else 0
        return total

    @property
    def family(self) -> WindowedFamily:
        family = self.harness.server.families.by_name["pages"]
        assert isinstance(family, WindowedFamily)
        return family

    def check(self, window: str | None, truth: Counter[str]) -> float:
        """The answer of a window, or of all time: bounds of labels and total, and the top. Returns the width."""
        family, total = self.family, truth.total()
        top = family_top(family, EPSILON, window)
        assert top.lower <= total <= top.upper
        for row in top.series:
            assert row.lower <= truth[family.label_of(row.counter)] <= row.upper
        missing = {label for label, n in truth.items() if n >= EPSILON * total and n}
        assert missing <= {family.label_of(row.counter) for row in top.series}
        for label in LABEL_NAMES:
            part = label_of_family(self.harness.server.by_name, f"pages{label}")
            if part is not None:
                answer = reading(Recorder(self.harness.server), window, None)(part)
                assert answer.lower <= truth[label] <= answer.upper
                assert answer.upper - answer.lower <= EPSILON * total or window is None
        return top.upper - top.lower


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))])
async def test_labels_of_every_window_are_inside_their_bounds(seed: int) -> None:
    holder: list[World] = []
    async with site_server(wall_clock=lambda: holder[0].clock() if holder else FIRST * HOUR) as harness:
        world = World(harness, seed)
        holder.append(world)
        await world.connect(3, FamilyRule(LABELS, EPSILON))
        wide = 0.0
        for hour in range(FIRST, FIRST + 4):
            for step in range(60):
                await world.count()
                if step % 6 == 5:
                    wide = max(wide, world.check("now", world.counted(hour)))
                    world.check("last", world.counted(hour - 1))
                    world.check("today", world.counted())
                    world.check(None, world.counted())
            await world.next_hour()
        assert wide > 0  # sites have held events back
        await world.next_hour()
        await world.next_hour()
        closed = [f"{world.family.calendar.local_time(each * 3600)}" for each in range(FIRST, FIRST + 4)]
        for number, moment in enumerate(closed):
            assert world.check(moment, world.counted(FIRST + number)) == 0  # exact
        rows = window_list(world.family.name, [world.family], 48).windows
        exact = [(row.lower, row.upper, row.complete) for row in rows[:4]]
        assert exact == [(n, n, True) for n in (world.counted(FIRST + each).total() for each in range(4))]
        label = label_of_family(world.harness.server.by_name, f"pages{LABEL_NAMES[0]}")
        assert label is not None
        with pytest.raises(InvalidParameter, match="is a label of family 'pages', whose windows are listed"):
            window_list(label.name, [label], 48)


async def test_top_of_a_day_has_the_labels_of_hours_that_are_not_kept() -> None:
    clock = [FIRST * HOUR + 100.0]
    async with site_server(wall_clock=lambda: clock[0]) as harness:
        rule = FamilyRule(LABELS, EPSILON)
        harness.server.create("pages", replace(rule, windows=WindowRule("hour", keep=1)))
        site = Site(harness, *await harness.connect("web"), rule)
        truth = Counter[str]()
        for hour, n in enumerate((90, 2, 5, 3)):
            clock[0] = (FIRST + hour) * HOUR + 100.0
            await site.count(f"pages@hour:{FIRST + hour}", LABEL_NAMES[hour], n)
            truth[LABEL_NAMES[hour]] = n
            for window in site.windows[:-1]:
                await site.leave(window)
            await harness.advance(1)
        family = harness.server.families.by_name["pages"]
        assert isinstance(family, WindowedFamily)
        top = family_top(family, 0.5, "today")
        assert {row.counter: (row.lower, row.upper) for row in top.series}[f"pages{LABEL_NAMES[0]}"] == (0, 90)
        assert (top.lower, top.upper) == (8, 100)
        for label, n in truth.items():
            answer = family.labels_between(FIRST * HOUR, clock[0]).answer(label)
            assert (answer.upper, answer.lower) == (n, n if label in LABEL_NAMES[2:4] else 0)


async def test_answers_of_a_window_have_its_span_and_state() -> None:
    world_clock = [FIRST * HOUR + 100.0]
    async with site_server(wall_clock=lambda: world_clock[0]) as harness:
        rule = FamilyRule(VALUES, 0.01, 0.01)
        site = Site(harness, *await harness.connect("web"), rule)
        buckets = rule.buckets
        for hour, value in enumerate((10, 1000)):
            world_clock[0] = (FIRST + hour) * HOUR + 100.0
            await site.count(f"ms@hour:{FIRST + hour}", buckets.label(value), 5)
        family = harness.server.families.by_name["ms"]
        distribution = family.values
        assert distribution is not None
        for window, value in (("last", 10), ("now", 1000)):
            answer = quantile_answer(distribution, ["0.5"], ["100"], window)
            assert answer.quantiles[0].estimate == pytest.approx(value, rel=0.01)
            assert (answer.lower, answer.ranks[0].lower) == (5, 5 if value == 10 else 0)
        last, now = (window_answer(family, which) for which in ("last", "now"))
        assert (last.start, last.complete, now.state) == ("2025-11-24T16:00:00+00:00", False, "exact")
        await site.leave(f"ms@hour:{FIRST}")
        await harness.advance(1)
        assert window_answer(family, "last").complete
        recorder = Recorder(harness.server)
        samples = {
            (sample.labels["window"], sample.value)
            for metric in ServerCollector(harness.server).collect()
            if metric.name == "countless_window"
            for sample in metric.samples
        }
        assert samples == {("now", 5), ("last", 5)}
        parts = parts_of(harness.server, "ms")
        with pytest.raises(InvalidParameter, match="ask for a window, such as now or last"):
            top_of("ms", parts, 0.1, reading(recorder, None, "5m"), None)
        with pytest.raises(InvalidParameter, match="is a distribution of values"):
            top_of("ms", parts, 0.1, reading(recorder, "now", None), "now")


def test_family_with_windows_is_created_read_and_deleted_over_http(tmp_path: Path) -> None:
    app = build_app(Settings(state_dir=str(tmp_path), open=True))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("127.0.0.1", 5000)) as client:
        new = {"name": "pages", "family": True, "epsilon": 0.02, "per": "hour", "tz": "Europe/Berlin", "keep": 5}
        assert client.post("/api/v1/counters", json=new).json()["per"] == "hour"
        assert client.post("/api/v1/counters", json=new).status_code == 409
        assert client.post("/api/v1/counters", json={"name": "plain", "family": True}).status_code == 201
        for refused in ({"epsilon": 0.6}, {"floor": 5}, {"alpha": 0.1}, {"per": None, "tz": None}, {"family": False}):
            assert client.post("/api/v1/counters", json=new | {"name": "other"} | refused).status_code == 400
        assert client.get("/api/v1/top/pages?window=last").json()["series"] == []
        assert client.get("/api/v1/counters/pages?window=today").json()["estimate"] == 0
        assert client.get("/api/v1/windows/pages").json()["tz"] == "Europe/Berlin"
        assert "no windows" in client.get("/api/v1/top/plain?window=now").json()["error"]
        assert "window" in client.get("/api/v1/top/pages?window=soon").json()["error"]
        assert "one count" in client.get("/api/v1/top/plain?rolling=5m").json()["error"]
        assert client.delete("/api/v1/counters/pages").status_code == 204


def test_share_that_too_many_labels_may_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, counts = FamilyRule(LABELS, 0.01), {"a": 40, "b": 30, "c": 20, "d": 10, "": 5}
    saved = SavedFamily(FamilyFields(0, Steps(0, 0), 1, 105, 0), counts, {})
    family = TrackedFamily(Key(FAMILY, "pages"), rule, Surroundings(), saved)
    monkeypatch.setattr(labels, "MAX_TOP_LABELS", 3)
    assert [row.estimate for row in family_top(family, 0.2).series] == [40, 30, 20, 5]  # the last is the overflow label
    with pytest.raises(InvalidParameter, match="larger: 4 labels may have it, and 3 can be listed"):
        family_top(family, 0.1)
