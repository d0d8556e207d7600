"""A counter is the sum of its labelled series: its answer, windows, rolling counts, list, watch and top."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from countless.client.answers import parse_top
from countless.core.answer import Answer, State, whole
from countless.core.messages import Report
from countless.errors import InvalidParameter, UnknownName
from countless.server.app import build_app
from countless.server.http.answers.published import public_view
from countless.server.http.answers.sums import answer_changes, parts_of, reading, summed, top_answer
from countless.server.http.api.schemas import PublicAnswer
from countless.server.http.history.history import Recorder
from countless.server.http.page.counter_view import CounterView
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.tuning import Tuning
from countless.wire.frames import VERSION, Hello, Join, decode_down, encode_frames
from support.site_server import site_server

NOW = 1_800_000_600.0
A, B, OVERFLOW = 'hits{route="/a"}', 'hits{route="/b"}', 'hits{overflow="true"}'


def total(server: SiteServer, name: str = "hits") -> PublicAnswer:
    return summed(name, [public_view(part) for part in parts_of(server, name)])


@pytest.fixture
def local(tmp_path: Path) -> Iterator[TestClient]:
    app = build_app(Settings(state_dir=str(tmp_path), open=True))
    with TestClient(app, base_url="http://127.0.0.1:2686", client=("127.0.0.1", 5000)) as client:
        yield client


async def test_events_with_and_without_labels_are_one_total() -> None:
    async with site_server(scheme="exact") as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(A, 0, 3), Join(B, 0, 4))
        assert (total(harness.server).counter, total(harness.server).estimate) == ("hits", 7)
        assert (total(harness.server, A).counter, total(harness.server, A).estimate) == (A, 3)
        await harness.send(session, connection, Join("hits", 0, 10), Report(A, 0, 5, 2))
        assert total(harness.server).estimate == 19
        harness.server.delete(A)
        assert total(harness.server).estimate == 14
        harness.server.delete("hits")
        with pytest.raises(UnknownName):
            total(harness.server)
        assert harness.server.names == set()


async def test_sum_has_the_series_beyond_the_cap_and_survives_a_restart() -> None:
    async with site_server(scheme="exact", label_cap=1) as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(A, 0, 3), Join(B, 0, 4))
        assert {part.name for part in harness.server.parts("hits")} == {A, OVERFLOW}
        assert total(harness.server).estimate == 7
        store = harness.store
    async with site_server(store, scheme="exact", label_cap=1) as harness:
        assert total(harness.server).estimate == 7
        assert total(harness.server).state is State.LEARNING


async def test_watch_of_a_counter_follows_its_series_also_those_that_come_later() -> None:
    async with site_server(scheme="exact") as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 10))
        changes = answer_changes(harness.server, "hits")
        assert (await anext(changes)).estimate == 10
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await harness.send(session, connection, Join(A, 0, 3))
        assert (await waiting).estimate == 13
        await harness.send(session, connection, Report(A, 0, 8, 5))
        assert (await anext(changes)).estimate == 18
        harness.server.delete("hits")
        with pytest.raises(StopAsyncIteration):
            await anext(changes)


async def test_watches_of_sums_together_use_a_part_of_the_processor() -> None:
    """Each would compute a sum of thousands of series four times a second."""
    async with site_server(tuning=Tuning(sum_interval_s=0.01), scheme="exact") as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(A, 0, 3))
        alone = answer_changes(harness.server, "hits")
        assert (await anext(alone)).estimate == 3
        harness.server.sum_watches = 10**12  # a sum takes some microseconds: its turn comes after days
        waiting = asyncio.ensure_future(anext(alone))
        await asyncio.sleep(0)
        await harness.send(session, connection, Report(A, 0, 8, 5))
        assert not (await asyncio.wait([waiting], timeout=0.1))[0]
        harness.server.drain()
        with pytest.raises(StopAsyncIteration):
            await waiting
        assert harness.server.sum_watches == 10**12


async def test_page_of_a_counter_shows_the_sum_and_the_largest_series() -> None:
    async with site_server(scheme="exact") as harness:
        view = CounterView(harness.server, Recorder(harness.server), "hits")
        assert [name for name, _ in view.changes()] == ["missing"]
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join(A, 0, 3), Join(B, 0, 4))
        events = dict(view.changes())
        assert list(events) == ["history", "spans", "bars", "top", "answer"]
        assert events["top"] == {"rows": [[B, 4, 4, 4], [A, 3, 3, 3]], "all": 2, "estimate": 7}
        assert (events["answer"]["estimate"], events["answer"]["state"]) == (7, "exact")
        assert list(view.changes()) == []
        await harness.send(session, connection, Report(A, 0, 9, 6))
        assert [(name, data["estimate"]) for name, data in view.changes()] == [("answer", 13)]
        harness.server.delete(A)
        harness.server.delete(B)
        assert [name for name, _ in view.changes()] == ["missing"]


async def test_windows_and_rolling_counts_are_sums() -> None:
    async with site_server(scheme="exact", wall_clock=lambda: NOW) as harness:
        recorder = Recorder(harness.server, clock=lambda: NOW, steady=lambda: NOW)
        session, connection = await harness.connect("web")
        period = int(NOW // 3600)
        names = [f'hits{{route="/{route}"}}@hour:{period}' for route in "ab"]
        await harness.send(session, connection, *(Join(name, 0, 5) for name in names))
        recorder.tick()
        parts = parts_of(harness.server, "hits")
        for window, rolling in (("now", None), (None, "1h")):
            read = reading(recorder, window, rolling)
            answer = summed("hits", [read(part) for part in parts])
            assert (answer.counter, answer.estimate, answer.lower, answer.upper) == ("hits", 10, 10, 10)
        top = top_answer("hits", [read(part) for part in parts], 0.1)
        assert [row.estimate for row in top.series] == [5, 5]
    with pytest.raises(InvalidParameter, match="window can't be used with rolling"):
        reading(recorder, "now", "1h")


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(-1, 1)), min_size=1, max_size=8), st.floats(0.01, 1))
def test_sum_and_top_hold_if_the_bounds_of_the_series_do(parts: list[tuple[int, float]], share: float) -> None:
    alpha, answers = 0.1, []
    for number, (count, error) in enumerate(parts):
        each = Answer(count * (1 + alpha * error), alpha, 0.05, State.HOLDING, 1, 1, "lattice")
        answers.append(PublicAnswer(f'x{{n="{number}"}}', *whole(each.estimate, *each.bounds), each.state, ""))
    answer, true = summed("x", answers), sum(count for count, _ in parts)
    assert answer.lower <= true <= answer.upper
    assert abs(answer.estimate - true) <= alpha * true * (1 + 1e-12) + len(parts) / 2  # each is rounded
    listed = {row.counter for row in top_answer("x", answers, share).series}
    for part, (count, _) in zip(answers, parts, strict=True):
        if count and count >= share * true * (1 + 1e-12):
            assert part.counter in listed
        if part.counter in listed:
            assert count >= share * true * ((1 - alpha) / (1 + alpha)) ** 2 - 1


def test_worst_state_of_the_series_is_that_of_the_sum() -> None:
    states = [State.EXACT, State.HOLDING, State.DEGRADED, State.LEARNING]
    for number in range(1, 5):
        answers = [PublicAnswer(f"x{{n={state}}}", 1, 1, 1, state, "") for state in states[:number]]
        assert summed("x", answers).state is states[number - 1]


def test_routes_answer_for_the_sum_and_the_top(local: TestClient) -> None:
    with local.websocket_connect("ws://127.0.0.1:2686/api/v1/site") as site:
        site.send_bytes(
            next(encode_frames([Hello(VERSION, "web", 1), Join(A, 0, 45), Join(B, 0, 4), Join(OVERFLOW, 0, 1)]))
        )
        decode_down(site.receive_bytes())
        listed = local.get("/api/v1/counters").json()["counters"]
        names = {each["counter"]: each["estimate"] for each in listed}
        assert list(names.items()) == [("hits", 50), (OVERFLOW, 1), (A, 45), (B, 4)]
        assert local.get("/api/v1/counters/hits").json()["estimate"] == 50
        assert local.get("/api/v1/counters/hits?rolling=1h").json()["estimate"] == 50
        top = local.get("/api/v1/top/hits").json()
        assert (top["share"], top["estimate"]) == (0.02, 50)
        assert [each["counter"] for each in top["series"]] == [A, B, OVERFLOW]
        assert [each["counter"] for each in local.get("/api/v1/top/hits?share=0.5").json()["series"]] == [A]
        assert "web" not in str(top)
    assert str(parse_top(top)).splitlines() == [
        "hits: 50 (from 50 to 50; exact), 2.00% or more:",
        "█" * 30 + '  90.0%  45 (from 45 to 45)  {route="/a"}',
        "███" + " " * 27 + '   8.0%  4 (from 4 to 4)  {route="/b"}',
        "█" + " " * 29 + '   2.0%  1 (from 1 to 1)  {overflow="true"}',
    ]


def test_share_is_the_decimal_that_was_written() -> None:
    """0.07 * 100 is more than 7 in doubles."""
    for percent in range(1, 101):
        parts = [PublicAnswer(name, n, n, n, State.EXACT, "") for name, n in ((A, percent), (B, 100 - percent))]
        assert A in {row.counter for row in top_answer("hits", parts, percent / 100).series}


@pytest.mark.parametrize("share", ["0", "1.5", "-1", "nan", "many", ""])
def test_share_out_of_range_is_a_400(local: TestClient, share: str) -> None:
    local.post("/api/v1/counters", json={"name": "hits"})
    response = local.get(f"/api/v1/top/hits?share={share}")
    assert response.status_code == 400
    assert "share" in response.json()["error"]


def test_unknown_counter_is_a_404(local: TestClient) -> None:
    for path in ("counters", "top", "watch"):
        response = local.get(f"/api/v1/{path}/nothing")
        assert (response.status_code, response.json()["error"]) == (404, "there is no counter 'nothing'")


def test_unknown_name_is_answered_with_the_one_that_was_meant(local: TestClient) -> None:
    for name in ("requests", 'requests{route="/a"}', "orders"):
        local.post("/api/v1/counters", json={"name": name})
    meant = "there is no counter 'request' (did you mean 'requests'?)"
    assert local.get("/api/v1/counters/request").json()["error"] == meant
    assert local.get("/api/v1/counters/nothing").json()["error"] == "there is no counter 'nothing'"
