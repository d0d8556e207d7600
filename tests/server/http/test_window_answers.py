"""Rolling counts in the API: what was counted in the last so many seconds, at least and at most."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from countless.core.answer import State
from countless.core.messages import Report
from countless.errors import InvalidParameter
from countless.server.app import build_app
from countless.server.http.history import Recorder
from countless.server.http.window_answers import rolling_answer
from countless.server.settings import Settings
from countless.wire.frames import Join, Leave
from support.site_server import FakeConnection, SiteServerHarness, site_server

START = 1_800_000_000.0


@pytest.fixture
def local(tmp_path: Path) -> Iterator[TestClient]:
    app = build_app(Settings(state_dir=str(tmp_path)))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("127.0.0.1", 5000)) as client:
        yield client


def recorder_of(harness: SiteServerHarness) -> Recorder:
    return Recorder(harness.server, clock=lambda: harness.time)


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
    if rolling == "15":  # seconds
        assert response.status_code == 200
        return
    assert response.status_code == 400
    assert "rolling must be a duration such as 30s, 15m" in response.json()["error"]
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
