"""`countless_count_total` never decreases, also across a restart; deleting a counter ends its series."""

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from countless.core.budget.messages import Ask, BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.messages import Report
from countless.server.http.monitoring import ROWS_PER_SLICE, exposition
from countless.server.settings import Config
from countless.server.site_server import SiteServer
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.frames import VERSION, Hello, Inherited, Join, Leave
from support.site_server import site_server
from support.spender import first_ask
from support.stores import FullStore
from support.waiting import eventually


async def samples(server: SiteServer, name: str, label: str = "counter") -> dict[str, float]:
    page = (await exposition(server, ""))[0].decode()
    families = list(text_string_to_metric_families(page))
    return {
        sample.labels.get(label, ""): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


async def total(server: SiteServer) -> float | None:
    return (await samples(server, "countless_count_total")).get("hits")


async def test_total_never_decreases_across_restart_and_reconfiguration() -> None:
    store = SqliteStore(None)
    async with site_server(store) as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 0))
        for number in range(1, 400):
            await harness.send(session, connection, Report("hits", 0, number, number))
        seen = [await total(harness.server) or 0]
        assert seen[0] >= 399
    async with site_server(store) as harness:
        seen.append(await total(harness.server) or 0)  # no site has rejoined yet
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 401))
        seen.append(await total(harness.server) or 0)
        harness.server.configure("hits", Config(alpha=0.3))
        await harness.server.flush()
        seen.append(await total(harness.server) or 0)
        assert seen == sorted(seen)


async def test_deleted_counter_has_no_series_and_its_successor_starts_at_zero() -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 50))
        harness.server.delete("hits")
        await harness.server.flush()
        assert await total(harness.server) is None
        await harness.send(session, connection, Join("hits", 0, 3))
        assert await total(harness.server) == 3


async def test_budgets_are_shown_and_names_that_follow_a_template_are_counted() -> None:
    async with site_server() as harness:
        harness.server.budgets.create("tokens", BudgetRule(10, slack=0))
        harness.server.budgets.create("keys/*", BudgetRule(2, slack=0))
        web, other = await harness.connect("web"), await harness.connect("other")
        asks = [first_ask(name, want) for name, want in (("tokens", 2), ("keys/a", 2), ("keys/b", 1))]
        await harness.send(*web, *asks)
        await harness.send(*other, asks[1])
        await harness.send(*web, Ask(BudgetId("tokens"), 2, 1, 1, 3, 0, 2, 0, keep=True))
        page = (await exposition(harness.server, ""))[0].decode()
    shown = [line for line in page.splitlines() if line.startswith("countless_budget")]
    assert shown == [
        'countless_budget_limit{budget="tokens"} 10.0',
        'countless_budget_limit{budget="keys/*"} 2.0',
        'countless_budget_used_lower{budget="tokens"} 2.0',
        'countless_budget_used_upper{budget="tokens"} 3.0',
        'countless_budget_held{budget="tokens"} 0.0',
        'countless_budget_leaked{budget="tokens"} 0.0',
        'countless_budget_asks_total{budget="tokens"} 1.0',
        'countless_budget_asks_total{budget="keys/*"} 3.0',
        'countless_budget_recalls_total{budget="tokens"} 0.0',
        'countless_budget_recalls_total{budget="keys/*"} 0.0',
        'countless_budget_names{budget="keys/*",state="open"} 1.0',
        'countless_budget_names{budget="keys/*",state="exhausted"} 1.0',
        'countless_budget_names{budget="keys/*",state="lowering"} 0.0',
        'countless_budget_names{budget="keys/*",state="resetting"} 0.0',
        'countless_budget_names{budget="keys/*",state="restoring"} 0.0',
        'countless_budget_names{budget="keys/*",state="closed"} 0.0',
    ]


async def test_scrape_of_many_counters_lets_the_loop_do_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the loop does in one go is collected from at most ROWS_PER_SLICE counters; the text is made in a thread."""
    turns, turns_before_text = 0, list[int]()

    async def to_thread(function: Callable[..., bytes], *arguments: object) -> bytes:
        turns_before_text.append(turns)
        return function(*arguments)

    async def turn() -> None:
        nonlocal turns
        turns += 1
        await asyncio.sleep(0)

    async with site_server() as harness:
        rows = 12 * ROWS_PER_SLICE
        for number in range(rows):
            harness.server.create(f"c{number}", Config())
        await harness.server.flush()
        monkeypatch.setattr(asyncio, "to_thread", to_thread)
        scrape = asyncio.create_task(exposition(harness.server, ""))
        await eventually(scrape.done, turn)
        assert turns_before_text[0] >= 3 * rows / ROWS_PER_SLICE  # answers, windows, messages
        assert (await scrape)[0].count(b"\ncountless_count_total{") == rows


async def test_failed_saves_are_counted() -> None:
    store = FullStore()
    async with site_server(store) as harness:
        store.full = True
        harness.server.create("hits", Config())
        await eventually(lambda: harness.server.failing is not None)
        harness.time = 7.0
        assert await samples(harness.server, "countless_save_failures_total") == {"": 1}
        assert await samples(harness.server, "countless_answers_behind_seconds") == {"": 7}
        store.full = False


async def test_label_overflow_is_counted() -> None:
    async with site_server(label_cap=1) as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, *(Join(f"hits{{n={number}}}", 0, 1) for number in range(4)))
        assert await samples(harness.server, "countless_label_overflow_total") == {"hits": 3}


async def test_connections_and_sessions_that_another_process_continues_are_counted() -> None:
    async with site_server() as harness:
        assert await samples(harness.server, "countless_replaced_total", "what") == {"connection": 0, "session": 0}
        await harness.connect("a")
        session, connection = await harness.connect("a")
        await harness.send(
            session, connection, Inherited(), Join("hits", 0, 1), Join("errors", 0, 1), Leave("hits", 0, 1)
        )
        harness.server.on_disconnect(session, connection)
        assert await harness.server.on_hello(connection, Hello(VERSION, "a", 1)) is None
        assert await samples(harness.server, "countless_replaced_total", "what") == {"connection": 1, "session": 1}


async def test_windows_are_gauges_that_begin_again() -> None:
    now = 490_000 * 3600.0 + 1800
    async with site_server(wall_clock=lambda: now, scheme="exact") as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits@hour:490000", 0, 50), Join("plain", 0, 1))
        assert await windows(harness.server) == {
            *{("hits", "now", name, 50.0) for name in WINDOW_METRICS},
            *{("hits", "last", name, 0.0) for name in WINDOW_METRICS},
        }
        await harness.send(session, connection, Leave("hits@hour:490000", 0, 51))
        now += 3600
        await harness.advance(1)
        assert await windows(harness.server) == {
            *{("hits", "now", name, 0.0) for name in WINDOW_METRICS},
            *{("hits", "last", name, 51.0) for name in WINDOW_METRICS},
        }


WINDOW_METRICS = ("countless_window", "countless_window_lower", "countless_window_upper")


async def windows(server: SiteServer) -> set[tuple[str, str, str, float]]:
    page = (await exposition(server, ""))[0].decode()
    return {
        (sample.labels["counter"], sample.labels["window"], sample.name, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name in WINDOW_METRICS
    }
