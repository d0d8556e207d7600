"""What operators see behind an answer: costs beside their rivals, the reason of the plan, the sites."""

import asyncio

from countless.core.messages import Report
from countless.server.http.history import Recorder
from countless.server.http.operator_view import SITE_SORTS, facts, site_page, site_rows
from countless.wire.frames import Join, encode_frames
from support.site_server import site_server


def test_costs_are_beside_what_others_would_have_cost() -> None:
    async def story() -> None:
        async with site_server() as table:
            recorder = Recorder(table.server, clock=lambda: table.time)
            life, line = await table.connect("web")
            await table.send(life, line, Join("hits", 0, 0))
            counter = table.server.counter("hits")
            counter.traffic.began = 0.0
            recorder.tick()
            for second in range(1, 121):
                table.time = float(second)
                life.last_seen = table.time
                table.server.tick()
                recorder.tick()
            await table.send(life, line, Report("hits", 0, 100, 100))
            found = facts(counter, recorder.of(counter))["cost"]
            assert (found["events"], found["messages"], found["up"]) == (100, 3, 2)  # joined, was told a pace, reported
            names = [other["name"] for other in found["others"]]
            assert names == ["one message per event", "flush every 1 s", "flush every 15 s", "flush every 60 s"]
            # 120 seconds of one site: 120 flushes of a second, but there were only 100 events to flush.
            assert [other["messages"] for other in found["others"]] == [100, 100, 8, 2]
            frame = len(next(encode_frames([Join("hits", 0, 100)])))
            assert [other["bytes"] for other in found["others"]] == [100 * frame, 100 * frame, 8 * frame, 2 * frame]

    asyncio.run(story())


def test_costs_after_a_restart_are_those_since_the_restart() -> None:
    async def story() -> None:
        async with site_server() as table:
            life, line = await table.connect("web")
            await table.send(life, line, Join("hits", 0, 40))
            async with site_server(table.store) as after:
                recorder = Recorder(after.server, clock=lambda: after.time)
                counter = after.server.counter("hits")
                assert facts(counter, recorder.of(counter))["cost"]["events"] == 0
                life, line = await after.connect("web")
                await after.send(life, line, Join("hits", 0, 45))
                await after.send(life, line, Report("hits", counter.coordinator.round, 45, 5))
                assert facts(counter, recorder.of(counter))["cost"]["events"] in (0, 5)

    asyncio.run(story())


def test_the_plan_says_why() -> None:
    async def story() -> None:
        async with site_server() as table:
            recorder = Recorder(table.server, clock=lambda: table.time)
            life, line = await table.connect("web")
            await table.send(life, line, Join("hits", 0, 3))
            counter = table.server.counter("hits")
            plan = facts(counter, recorder.of(counter))["plan"]
            assert "fewer than 32 sites" in plan["why"]
            assert plan["against"] == "traffic that sees the answers"
            assert plan["prices"][0]["scheme"] == "deterministic"
            assert plan["reasons"][0]["number"] == "messages_per_efold"
            config = table.server.settings.defaults
            table.server.create("fixed", type(config)(scheme="exact"))
            fixed = table.server.counter("fixed")
            assert "configured to run exact" in facts(fixed, recorder.of(fixed))["plan"]["why"]

    asyncio.run(story())


def test_a_table_of_sites_is_found_sorted_and_cut() -> None:
    async def story() -> None:
        async with site_server() as table:
            for number in range(7):
                life, line = await table.connect(f"Web-{number}")
                life.last_seen = 100.0 if number != 4 else 0.0
                await table.send(life, line, Join("hits", 0, number * 10))
                life.last_seen = 100.0 if number != 4 else 0.0
            table.time = 100.0
            table.server.tick()  # the fifth has not been heard for longer than ten seconds
            counter = table.server.counter("hits")
            rows = list(site_rows(table.server, counter, now=5_100.0))
            assert site_page(rows, "", "state", 0, 1)[1][0][:3] == ("Web-4", "silent", 5_000.0)
            assert [row.site for row in site_page(rows, "", "-known", 0, 2)[1]] == ["Web-6", "Web-5"]
            assert [row.site for row in site_page(rows, "", "site", 5, 50)[1]] == ["Web-5", "Web-6"]
            found, page = site_page(rows, "WEB-3", "heard", 0, 50)
            assert (found, [row.known for row in page]) == (1, [30])
            assert {"site", "state", "heard", "known"} == set(SITE_SORTS)

    asyncio.run(story())
