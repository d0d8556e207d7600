"""Windows and rolling counts in the API: what was counted in a span of time, at least and at most."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from countless.client.answers import parse_window
from countless.core.answer import State
from countless.core.calendar import Calendar
from countless.core.messages import Report
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter
from countless.server.app import build_app
from countless.server.http.answers.operator_view import operator_answer, operator_sum
from countless.server.http.answers.sums import summed
from countless.server.http.answers.windows import rolling_answer, window_answer, window_list
from countless.server.http.history.history import Recorder
from countless.server.settings import Config, Settings
from countless.wire.frames import Join, Leave
from support.site_server import FakeConnection, SiteServerHarness, site_server

START = 1_800_000_000.0


@pytest.fixture
def local(tmp_path: Path) -> Iterator[TestClient]:
    app = build_app(Settings(state_dir=str(tmp_path), open=True))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("127.0.0.1", 5000)) as client:
        yield client


def recorder_of(harness: SiteServerHarness) -> Recorder:
    return Recorder(harness.server, clock=lambda: harness.time, steady=lambda: harness.time)


async def counted(harness: SiteServerHarness, recorder: Recorder, connection: FakeConnection, count: int) -> None:
    session = next(iter(harness.server.sessions))
    await harness.send(session, connection, Report("hits", 0, count, count))
    recorder.tick()


async def test_rolling_count_and_rate_are_exact_where_every_event_is_reported() -> None:
    async with site_server(scheme="exact") as harness:
        harness.time = START
        recorder = recorder_of(harness)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 100))
        recorder.tick()
        for second in range(1, 61):
            harness.time = START + second
            await counted(harness, recorder, connection, 100 + 2 * second)
        answer = rolling_answer(harness.server.counter("hits"), recorder, "30s")
        assert (answer.lower, answer.estimate, answer.upper, answer.state) == (60, 60, 60, State.EXACT)
        assert (answer.rate.lower, answer.rate.estimate, answer.rate.upper) == (2.0, 2.0, 2.0)
        assert (answer.start, answer.end) == ("2027-01-15T08:00:30.000+00:00", "2027-01-15T08:01:00.000+00:00")
        assert (answer.known_since, answer.as_of) == (None, answer.end)


async def test_rolling_count_after_a_restart_says_since_when_it_is_known() -> None:
    async with site_server(scheme="exact") as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 1000))
        async with site_server(harness.store, scheme="exact") as after:
            after.time = START
            recorder = recorder_of(after)
            recorder.tick()
            answer = rolling_answer(after.server.counter("hits"), recorder, "15m")
            assert (answer.lower, answer.estimate, answer.state) == (0, 0, State.LEARNING)
            assert answer.known_since == "2027-01-15T08:00:00.000+00:00"
            session, connection = await after.connect("web")
            # 500 more while there was no coordinator: nothing says when.
            await after.send(session, connection, Join("hits", 0, 1500), Leave("hits", 0, 1500))
            after.time += 60
            recorder.tick()
            session, connection = await after.connect("api")
            await after.send(session, connection, Join("hits", 0, 7))
            after.time += 60
            answer = rolling_answer(after.server.counter("hits"), recorder, "90s")
            assert answer.lower == 7  # since the first answer that held
            assert 507 <= answer.upper < 600
            answer = rolling_answer(after.server.counter("hits"), recorder, "15m")
            assert (answer.lower, answer.upper, answer.known_since) == (7, 1507, "2027-01-15T08:00:00.000+00:00")
            # The estimate of the rate is over the two minutes that are known, within the bounds of all 15.
            assert (answer.rate.lower, answer.rate.upper) == (7 / 900, 1507 / 900)
            assert answer.rate.estimate == min(answer.estimate / 120, 1507 / 900)


async def test_rolling_count_forgets_a_deleted_counter() -> None:
    async with site_server(scheme="exact") as harness:
        harness.time = START
        recorder = recorder_of(harness)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 100))
        recorder.tick()
        harness.time += 10
        harness.server.delete("hits")
        await harness.send(session, connection, Join("hits", 0, 250))
        harness.server.counter("hits").traffic.began = harness.time
        harness.time += 10
        answer = rolling_answer(harness.server.counter("hits"), recorder, "60s")
        assert (answer.lower, answer.upper, answer.known_since) == (250, 250, None)


async def test_silent_site_may_have_counted_more() -> None:
    async with site_server(silent_after=1, scheme="exact") as harness:
        harness.time = START
        recorder = recorder_of(harness)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 100))
        recorder.tick()
        harness.server.on_disconnect(session, connection)
        await harness.advance(10)
        answer = rolling_answer(harness.server.counter("hits"), recorder, "5s")
        assert (answer.lower, answer.state) == (0, State.DEGRADED)  # the state says that it may be more than `upper`
        session, connection = await harness.connect("web")  # it has counted 40 more, at any time
        await harness.send(session, connection, Join("hits", 0, 140), Report("hits", 0, 140, 40))
        await harness.advance(1)
        answer = rolling_answer(harness.server.counter("hits"), recorder, "5s")
        assert (answer.lower, answer.upper, answer.state) == (0, 40, State.HOLDING)


@pytest.mark.parametrize("rolling", ["", "15", "15 minutes", "-5m", "0s", "1000y", "nan", "9" * 1000, "99999d"])
def test_rolling_that_is_no_duration_is_a_400(local: TestClient, rolling: str) -> None:
    local.post("/api/v1/counters", json={"name": "hits"})
    response = local.get("/api/v1/counters/hits", params={"rolling": rolling})
    assert response.status_code == 400
    assert "rolling must be a duration" in response.json()["error"]
    assert len(response.text) < 400


def test_rolling_count_over_http(local: TestClient) -> None:
    assert local.get("/api/v1/counters/nothing?rolling=15m").status_code == 404
    local.post("/api/v1/counters", json={"name": "a/b"})
    answer = local.get("/api/v1/counters/a/b?rolling=15m").json()
    assert set(answer) == {
        *("counter", "rolling", "start", "end", "estimate", "lower", "upper", "state", "rate", "known_since", "as_of"),
    }
    assert (answer["counter"], answer["rolling"], answer["upper"], answer["known_since"]) == ("a/b", "15m", 0, None)


async def test_rolling_is_refused_before_a_history_is_started() -> None:
    async with site_server() as harness:
        harness.server.create("hits", harness.server.settings.defaults)
        recorder = recorder_of(harness)
        with pytest.raises(InvalidParameter):
            rolling_answer(harness.server.counter("hits"), recorder, "x")
        assert recorder.debug_state() == []


# Windows


class Clock:
    def __init__(self, text: str) -> None:
        self.seconds = Calendar("hour").moment(text)

    def __call__(self) -> float:
        return self.seconds


def hour(clock: Clock) -> str:
    return f"hits@hour:{int(clock.seconds // 3600)}"


async def count_hour(harness: SiteServerHarness, clock: Clock, text: str, count: int, site: str = "web") -> None:
    """A site counts in the hour of this time, and leaves it."""
    clock.seconds = Calendar("hour").moment(text)
    session, connection = await harness.connect(site)
    await harness.send(session, connection, Join(hour(clock), 0, count))
    await harness.send(session, connection, Leave(hour(clock), 0, count))
    clock.seconds += 3600
    await harness.advance(1)


async def test_windows_by_name() -> None:
    clock = Clock("2026-11-15T22:30Z")
    async with site_server(wall_clock=clock, scheme="exact") as harness:
        await count_hour(harness, clock, "2026-11-15T22:30Z", 7)
        await count_hour(harness, clock, "2026-11-16T08:30Z", 20)
        session, connection = await harness.connect("web", 2)
        await harness.send(session, connection, Join(hour(clock), 0, 3))
        counter = harness.server.counter("hits")
        now = window_answer(counter, "now")
        assert (now.window, now.start, now.end) == ("now", "2026-11-16T09:00:00+00:00", "2026-11-16T10:00:00+00:00")
        assert (now.lower, now.estimate, now.upper, now.state, now.complete) == (3, 3, 3, State.EXACT, False)
        assert (now.as_of, now.known_since) == ("2026-11-16T09:30:00.000+00:00", None)
        last = window_answer(counter, "last")
        assert (last.estimate, last.state, last.complete) == (20, State.EXACT, True)
        today, yesterday = window_answer(counter, "today"), window_answer(counter, "yesterday")
        assert (today.estimate, today.complete) == (23, False)
        assert (yesterday.estimate, yesterday.complete, yesterday.state) == (7, True, State.EXACT)
        assert window_answer(counter, "this-month").estimate == 30
        assert window_answer(counter, "2026-11-15T23:10").estimate == 0
        assert window_answer(counter, "2026-11-16T09:10 01:00").estimate == 20  # a plus that was not encoded


async def test_incomplete_window_names_its_sites_to_operators_only() -> None:
    clock = Clock("2026-11-16T08:30Z")
    async with site_server(wall_clock=clock, scheme="exact", silent_after=1) as harness:
        session, connection = await harness.connect("stuck")
        await harness.send(session, connection, Join(hour(clock), 0, 5))
        harness.server.on_disconnect(session, connection)
        clock.seconds += 7200
        await harness.advance(10)
        counter = harness.server.counter("hits")
        window = window_answer(counter, "2026-11-16T08:30")
        assert (window.estimate, window.complete, window.state) == (5, False, State.DEGRADED)
        without = window_answer(counter, "last")  # nothing is known of it, but the site may have counted in it
        assert (without.upper, without.complete, without.state) == (0, False, State.DEGRADED)
        assert "stuck" not in str(window) + str(window_list(counter.name, [counter], 48))
        status = operator_answer(counter).windows
        assert status is not None
        assert [(each.start, each.waiting_for, each.lost) for each in status.incomplete] == [
            ("2026-11-16T08:00:00+00:00", ["stuck"], 0)
        ]
        assert harness.server.drop_site("stuck") == 1
        await harness.advance(1)
        window = window_answer(harness.server.counter("hits"), "2026-11-16T08:30")
        assert (window.estimate, window.complete, window.state) == (5, False, State.DEGRADED)
        status = operator_answer(counter).windows
        assert status is not None
        assert [(each.waiting_for, each.lost) for each in status.incomplete] == [([], 1), ([], 1)]


async def test_list_of_windows() -> None:
    clock = Clock("2026-11-16T08:30Z")
    async with site_server(wall_clock=clock, scheme="exact") as harness:
        for text, count in (("2026-11-16T08:30Z", 5), ("2026-11-16T09:30Z", 6), ("2026-11-16T11:30Z", 7)):
            await count_hour(harness, clock, text, count)
        counter = harness.server.counter("hits")
        listed = window_list(counter.name, [counter], 3)
        assert (listed.per, listed.tz, listed.anchor) == ("hour", "UTC", 0)
        assert [(row.start[11:16], row.estimate, row.complete) for row in listed.windows] == [
            *(("09:00", 6, True), ("11:00", 7, True), ("12:00", 0, False))
        ]
        assert len(window_list(counter.name, [counter], 48).windows) == 4


async def test_windows_of_a_counter_that_has_labelled_series_only_are_the_sums_of_theirs() -> None:
    clock = Clock("2026-11-16T08:30Z")
    async with site_server(wall_clock=clock, scheme="exact", silent_after=1) as harness:
        a, b = ('hits{route="/a"}', 'hits{route="/b"}')
        web, app = await harness.connect("web"), await harness.connect("app")
        await harness.send(*web, Join(f"{a}@{hour(clock).partition('@')[2]}", 0, 5))
        await harness.send(*app, Join(f"{b}@{hour(clock).partition('@')[2]}", 0, 7))
        left = Leave(f"{a}@{hour(clock).partition('@')[2]}", 0, 5)
        clock.seconds += 3600
        await harness.send(*web, left, Join(f"{a}@{hour(clock).partition('@')[2]}", 0, 1))
        await harness.advance(0.5)

        def listed() -> list[tuple[str, int, int, bool]]:
            rows = window_list("hits", harness.server.parts("hits"), 48).windows
            return [(row.start[11:16], row.lower, row.upper, row.complete) for row in rows]

        assert listed() == [("08:00", 12, 12, False), ("09:00", 1, 1, False)]  # one site has not left the first
        harness.server.on_disconnect(*app)
        await harness.advance(5)
        total = operator_sum(harness.server, "hits")
        assert (total.counter, total.known, total.silent, total.messages.up) == ("hits", 13, ["app", "web"], 4)
        assert total.windows is not None
        assert [(each.start[11:16], each.waiting_for) for each in total.windows.incomplete] == [("08:00", ["app"])]
        harness.server.drop_site("app")
        await harness.advance(1)
        assert listed()[0] == ("08:00", 12, 12, False)  # lost
        with pytest.raises(InvalidParameter, match="limit must be at most 25000: there are 2 series"):
            window_list("hits", harness.server.parts("hits"), 25_001)


async def test_windows_that_are_not_kept_any_more_are_allowed_for() -> None:
    clock = Clock("2026-11-16T08:30Z")
    async with site_server(wall_clock=clock, scheme="exact") as harness:
        harness.server.create("hits", Config(scheme="exact", windows=WindowRule("hour", keep=2)))
        for number in range(4):
            await count_hour(harness, clock, f"2026-11-16T0{5 + number}:30Z", 10)
        today = window_answer(harness.server.counter("hits"), "today")
        assert (today.lower, today.upper, today.known_since) == (20, 40, "2026-11-16T07:00:00+00:00")
        assert today.first_window is None  # it is not kept


async def test_bounds_of_a_span_that_is_over_hold_whatever_the_state_of_the_open_window_is() -> None:
    clock = Clock("2026-11-15T21:30Z")
    async with site_server(wall_clock=clock, scheme="exact", silent_after=1.0) as harness:
        harness.server.create("hits", Config(scheme="exact", windows=WindowRule("hour", keep=2)))
        for number in range(3):
            await count_hour(harness, clock, f"2026-11-15T2{1 + number}:30Z", 10)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(hour(clock), 0, 3))
        harness.server.on_disconnect(session, connection)
        await harness.advance(2)
        counter = harness.server.counter("hits")
        now, yesterday = window_answer(counter, "now"), window_answer(counter, "yesterday")
        assert (now.state, now.complete) == (State.DEGRADED, False)
        assert (yesterday.lower, yesterday.upper) == (20, 30)  # one of its windows is not kept
        assert (yesterday.state, yesterday.complete) == (State.HOLDING, True)


async def test_window_before_the_counter_existed_says_so() -> None:
    clock = Clock("2026-11-16T08:30Z")
    async with site_server(wall_clock=clock, scheme="exact") as harness:
        harness.server.create("hits", Config(scheme="exact", windows=WindowRule("hour")))
        assert window_answer(harness.server.counter("hits"), "yesterday").first_window is None  # nothing was counted
        for number in range(2):
            await count_hour(harness, clock, f"2026-11-16T0{7 + number}:30Z", 10)
            yesterday = window_answer(harness.server.counter("hits"), "yesterday")
            assert (yesterday.upper, yesterday.first_window) == (0, "2026-11-16T07:00:00+00:00")
        shown = str(parse_window(msgspec.to_builtins(yesterday)))
        assert shown.endswith("0 (exact; before the first window, which began at 2026-11-16T07:00:00+00:00)")
        later = summed("hits", [replace(yesterday, counter="b", first_window="2026-11-16T08:00:00+00:00"), yesterday])
        assert later.first_window == yesterday.first_window
        today = str(parse_window(msgspec.to_builtins(window_answer(harness.server.counter("hits"), "today"))))
        assert "before" not in today


async def test_rolling_count_uses_windows_after_a_restart() -> None:
    clock = Clock("2026-11-16T08:30Z")
    async with site_server(wall_clock=clock, scheme="exact") as harness:
        for number in range(4):
            await count_hour(harness, clock, f"2026-11-16T0{5 + number}:30Z", 10)
        async with site_server(harness.store, wall_clock=clock, scheme="exact") as after:
            recorder = Recorder(after.server, clock=clock, steady=clock)
            answer = rolling_answer(after.server.counter("hits"), recorder, "150m")  # from seven o'clock on
            assert (answer.lower, answer.estimate, answer.upper, answer.known_since) == (20, 20, 20, None)
            answer = rolling_answer(after.server.counter("hits"), recorder, "3h")
            assert (answer.lower, answer.estimate, answer.upper, answer.known_since) == (20, 25, 30, None)


def test_counter_with_windows_is_created_configured_and_read_over_http(local: TestClient) -> None:
    body = {"name": "a/b", "per": "day", "tz": "Europe/Berlin", "anchor": 6, "floor": 500, "keep": 30}
    made = local.post("/api/v1/counters", json=body)
    assert made.status_code == 201, made.text
    assert made.json()["windows"] == {
        "per": "day",
        "tz": "Europe/Berlin",
        "anchor": 6,
        "floor": 500,
        "keep": 30,
        "incomplete": [],
    }
    assert local.get("/api/v1/counters/a/b").json()["per"] == "day"
    window = local.get("/api/v1/counters/a/b?window=today").json()
    assert set(window) == {
        *("counter", "window", "start", "end", "estimate", "lower", "upper", "state", "complete", "known_since"),
        *("as_of", "first_window"),
    }
    assert "T06:00:00+0" in window["start"]
    listed = local.get("/api/v1/windows/a/b?limit=2").json()
    assert (listed["per"], len(listed["windows"])) == ("day", 1)
    changed = local.patch("/api/v1/counters/a/b", json={"floor": None, "keep": 7, "alpha": 0.02}).json()
    assert (changed["windows"]["floor"], changed["windows"]["keep"], changed["alpha"]) == (None, 7, 0.02)
    changed = local.patch("/api/v1/counters/a/b", json={"per": "day", "delta": 0.1}).json()
    assert (changed["windows"]["keep"], changed["delta"]) == (7, 0.1)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"name": "x", "per": "week"}, "per must be one of: minute, hour, day, month"),
        ({"name": "x", "per": 5}, "per must be one of"),
        ({"name": "x", "tz": "Europe/Berlin"}, "give per, too, such as 'hour'"),
        ({"name": "x", "keep": 5}, "give per, too, such as 'hour'"),
        ({"name": "x", "per": "day", "tz": "Mars/Olympus"}, "tz must be the name of a time zone"),
        ({"name": "x", "per": "day", "anchor": 24}, "anchor must be an integer from 0 to 23"),
        ({"name": "x", "per": "day", "floor": -1}, "floor must be an integer of at least 0"),
        ({"name": "x", "per": "day", "floor": 10**60}, "floor must be at most"),
        ({"name": "x", "per": "day", "keep": 0}, "keep must be an integer of at least 1"),
        ({"name": "x", "per": "day", "keep": "all"}, "keep must be an integer of at least 1"),
    ],
)
def test_bad_rule_of_windows_is_a_400(local: TestClient, body: dict[str, object], problem: str) -> None:
    response = local.post("/api/v1/counters", json=body)
    assert (response.status_code, problem in response.json()["error"]) == (400, True), response.text
    assert local.get("/api/v1/counters").json()["counters"] == []


def test_windows_of_a_counter_cannot_be_changed(local: TestClient) -> None:
    local.post("/api/v1/counters", json={"name": "hourly", "per": "hour"})
    local.post("/api/v1/counters", json={"name": "plain"})
    for body in ({"per": "day"}, {"tz": "Asia/Tokyo"}):
        response = local.patch("/api/v1/counters/hourly", json=body)
        assert (response.status_code, "delete the counter" in response.json()["error"]) == (400, True), response.text
    response = local.patch("/api/v1/counters/plain", json={"keep": 3})
    assert "give per, too" in response.json()["error"]
    given = local.patch("/api/v1/counters/plain", json={"per": "hour", "tz": "Asia/Tokyo", "keep": 3}).json()
    assert (given["per"], given["windows"]["tz"], given["windows"]["keep"]) == ("hour", "Asia/Tokyo", 3)


def test_questions_about_windows_that_have_no_answer(local: TestClient) -> None:
    local.post("/api/v1/counters", json={"name": "hourly", "per": "hour"})
    local.post("/api/v1/counters", json={"name": "plain"})
    problems = {
        "/counters/plain?window=today": "no windows: `countless counter set plain --per hour` starts some",
        "/windows/plain": "counter 'plain' has no windows",
        "/counters/hourly?window=this-minute": "the windows of this counter are hours",
        "/counters/hourly?window=tomorrow": "one of: now, last, this-hour, last-hour, this-day",
        "/counters/hourly?window=now&rolling=5m": "window can't be used with rolling",
        "/windows/hourly?limit=0": "limit must be an integer from 1 to 1000",
        "/windows/hourly?limit=x": "limit must be an integer from 1 to 1000",
    }
    for path, problem in problems.items():
        response = local.get(f"/api/v1{path}")
        assert (response.status_code, problem in response.json()["error"]) == (400, True), response.text
    assert local.get("/api/v1/counters/nothing?window=now").status_code == 404
    assert local.get("/api/v1/windows/nothing").status_code == 404
