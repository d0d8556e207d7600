"""What operators see of a counter: costs beside those of alternatives, why the plan runs, sites."""

from countless.core.messages import Report
from countless.server.http.answers.operator_view import SITE_SORTS, details, site_page, site_rows
from countless.server.http.history.history import Recorder
from countless.wire.frames import Join, encode_frames
from support.site_server import site_server


async def test_cost_is_compared_with_messages_per_event_and_flushes() -> None:
    async with site_server() as harness:
        recorder = Recorder(harness.server, clock=lambda: harness.time, steady=lambda: harness.time)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 0))
        counter = harness.server.counter("hits")
        counter.traffic.began = 0.0
        recorder.tick()
        for second in range(1, 121):
            harness.time = float(second)
            session.last_seen = harness.time
            harness.server.tick()
            recorder.tick()
        await harness.send(session, connection, Report("hits", 0, 100, 100))
        found = details(counter, recorder.for_counter(counter))["cost"]
        assert (found["events"], found["messages"], found["up"]) == (100, 3, 2)  # join, trigger, report
        names = [other["name"] for other in found["others"]]
        assert names == ["one message per event", "flush every 1 s", "flush every 15 s", "flush every 60 s"]
        # 120 seconds of one site: 120 flushes every second, but there were only 100 events to flush.
        assert [other["messages"] for other in found["others"]] == [100, 100, 8, 2]
        frame = len(next(encode_frames([Join("hits", 0, 100)])))
        # At 100 events in 120 seconds: 72,000 a day; a site that flushes sends no more than 86,400 messages.
        assert [other["day"] for other in found["others"]] == [72_000, 72_000, 5_760, 1_440]
        assert [round(other["error"], 1) for other in found["others"]] == [0.0, 0.8, 12.5, 50.0]
        assert [other["age"] for other in found["others"]] == [0, 1, 15, 60]
        assert (found["total"], found["error"]) == (101, 1)  # from 100 to 102
        assert 0 < found["day"] < 2 * 72_000
        assert [other["bytes"] for other in found["others"]] == [100 * frame, 100 * frame, 8 * frame, 2 * frame]


async def test_cost_is_counted_since_the_restart() -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 40))
        async with site_server(harness.store) as after:
            recorder = Recorder(after.server, clock=lambda: after.time, steady=lambda: after.time)
            counter = after.server.counter("hits")
            assert details(counter, recorder.for_counter(counter))["cost"]["events"] == 0
            session, connection = await after.connect("web")
            await after.send(session, connection, Join("hits", 0, 45))
            await after.send(session, connection, Report("hits", counter.coordinator.round, 45, 5))
            assert details(counter, recorder.for_counter(counter))["cost"]["events"] in (0, 5)


async def test_plan_summary_says_why_the_plan_runs() -> None:
    async with site_server() as harness:
        recorder = Recorder(harness.server, clock=lambda: harness.time, steady=lambda: harness.time)
        session, connection = await harness.connect("web")
        await harness.send(session, connection, Join("hits", 0, 3))
        counter = harness.server.counter("hits")
        plan = details(counter, recorder.for_counter(counter))["plan"]
        assert "fewer than 64 sites" in plan["why"]
        assert plan["against"] == "traffic that sees the answers"
        assert plan["prices"][0]["scheme"] == "deterministic"
        assert plan["reasons"][0]["number"] == "messages_per_efold"
        config = harness.server.settings.defaults
        harness.server.create("fixed", type(config)(scheme="exact"))
        fixed = harness.server.counter("fixed")
        assert "configured to run exact" in details(fixed, recorder.for_counter(fixed))["plan"]["why"]


async def test_site_page_filters_sorts_and_cuts() -> None:
    async with site_server() as harness:
        for number in range(7):
            session, connection = await harness.connect(f"Web-{number}")
            session.last_seen = 100.0 if number != 4 else 0.0
            await harness.send(session, connection, Join("hits", 0, number * 10))
            session.last_seen = 100.0 if number != 4 else 0.0
        harness.time = 100.0
        harness.server.tick()  # the fifth has timed out
        counter = harness.server.counter("hits")
        rows = list(site_rows(harness.server, counter, now=5_100.0))
        assert site_page(rows, "", "state", 0, 1)[1][0][:3] == ("Web-4", "silent", 5_000.0)
        assert [row.site for row in site_page(rows, "", "-known", 0, 2)[1]] == ["Web-6", "Web-5"]
        assert [row.site for row in site_page(rows, "", "site", 5, 50)[1]] == ["Web-5", "Web-6"]
        found, page = site_page(rows, "WEB-3", "seen", 0, 50)
        assert (found, [row.known for row in page]) == (1, [30])
        assert {"site", "state", "seen", "known"} == set(SITE_SORTS)
