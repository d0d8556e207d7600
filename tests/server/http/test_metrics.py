"""`countless_count_total` never falls: not in a restart, not under other rules. Deleting a counter ends its series."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from countless.core.messages import Report
from countless.server.http.metrics import exposition
from countless.server.sessions.site_server import SiteServer
from countless.server.storage.base import Config
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import Join
from support.site_server import site_server


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def samples(host: SiteServer, name: str) -> dict[str, float]:
    page = exposition(host, "")[0].decode()
    families = list(text_string_to_metric_families(page))
    return {
        sample.labels.get("counter", ""): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def total(host: SiteServer) -> float | None:
    return samples(host, "countless_count_total").get("hits")


def test_the_total_survives_a_restart_and_other_rules() -> None:
    async def story() -> None:
        store = SqliteStore(None)
        async with site_server(store) as table:
            life, line = await table.connect("a")
            await table.send(life, line, Join("hits", 0, 0))
            for number in range(1, 400):
                await table.send(life, line, Report("hits", 0, number, number))
            seen = [total(table.server) or 0]
            assert seen[0] >= 399
        async with site_server(store) as table:
            seen.append(total(table.server) or 0)  # nobody has answered yet
            life, line = await table.connect("a")
            await table.send(life, line, Join("hits", 0, 401))
            seen.append(total(table.server) or 0)
            table.server.configure("hits", Config(alpha=0.3))
            await table.server.flush()
            seen.append(total(table.server) or 0)
            assert seen == sorted(seen)

    play(story())


def test_a_deleted_counter_has_no_series_and_the_next_of_its_name_begins_at_nothing() -> None:
    async def story() -> None:
        async with site_server() as table:
            life, line = await table.connect("a")
            await table.send(life, line, Join("hits", 0, 50))
            table.server.delete("hits")
            await table.server.flush()
            assert total(table.server) is None
            await table.send(life, line, Join("hits", 0, 3))
            assert total(table.server) == 3

    play(story())


def test_the_overflow_of_labels_is_counted() -> None:
    async def story() -> None:
        async with site_server(label_cap=1) as table:
            life, line = await table.connect("a")
            await table.send(life, line, *(Join(f"hits{{n={number}}}", 0, 1) for number in range(4)))
            assert samples(table.server, "countless_label_overflow_total") == {"hits": 3}

    play(story())
