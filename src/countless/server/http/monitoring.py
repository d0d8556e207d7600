"""Metrics, health probes and the OpenAPI document. `/metrics` is for operators only, because message counts reveal the
random choices that the bounds rely on.

With 20,000 counters there are 260,000 lines, which take seconds. So the loop collects them in slices, and a thread
writes the text: neither keeps the loop from other work.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from time import time
from typing import NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from starlette.datastructures import State as AppState
from starlette.requests import Request
from starlette.responses import Response

from countless import __version__
from countless.core.answer import State
from countless.core.budget.state import BudgetState
from countless.server.http.answers.windows import named_span
from countless.server.http.api.openapi import Operation, json
from countless.server.http.api.schemas import Live, Ready
from countless.server.http.budgets.schemas import budgets_of
from countless.server.http.server_view import ServerView
from countless.server.timings import Timings
from countless.wire.keys import is_template

ROWS_PER_SLICE = 100  # counters, sites or budgets: some milliseconds

Slices = Iterator[Metric | None]  # None: other work may be done now


class ServerCollector:
    def __init__(self, server: ServerView) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        return (metric for metric in self.collect_in_slices() if metric is not None)

    def collect_in_slices(self) -> Slices:
        yield from self._answers()
        yield from self._windows()
        yield from self._traffic()
        yield from self._saves()
        yield from self._sites()
        yield from self._budgets()
        build = _gauge("countless_build_info", "Version of the running coordinator.", "version")
        build.add_metric([__version__], 1)
        yield build

    def _answers(self) -> Slices:
        total = _counter(
            "countless_count",
            "Largest published total; decreases only when the counter is deleted, or the state restored.",
            "counter",
        )
        lower = _gauge("countless_count_lower", "Lower bound of the true total.", "counter")
        upper = _gauge("countless_count_upper", "Upper bound of the true total.", "counter")
        state = _gauge("countless_answer_state", "1 for the current state, 0 for the others.", "counter", "state")
        rounds = _counter("countless_rounds", "Rounds started.", "counter")
        for number, (name, counter) in enumerate(list(self._server.by_name.items())):
            if number % ROWS_PER_SLICE == 0:
                yield None
            answer = counter.published_answer
            total.add_metric([name], counter.largest_published)
            lower.add_metric([name], answer.lower)
            upper.add_metric([name], answer.upper)
            rounds.add_metric([name], answer.round)
            for each in State:
                state.add_metric([name, each], each is answer.state)
        yield from (total, lower, upper, state, rounds)

    def _windows(self) -> Slices:
        """Gauges, because a window begins again from zero."""
        labels, which = ("counter", "window"), "of the open window (now) and of the one before it (last)."
        count = _gauge("countless_window", f"Published count {which}", *labels)
        lower = _gauge("countless_window_lower", f"Lower bound of the true count {which}", *labels)
        upper = _gauge("countless_window_upper", f"Upper bound of the true count {which}", *labels)
        for number, (name, counter) in enumerate(list(self._server.by_name.items())):
            if number % ROWS_PER_SLICE == 0:
                yield None
            if counter.spans is not None:
                now = counter.spans.now()
                for window in ("now", "last"):
                    span = named_span(counter.spans, window, now)
                    count.add_metric([name, window], span.estimate)
                    lower.add_metric([name, window], span.lower)
                    upper.add_metric([name, window], span.upper)
        yield from (count, lower, upper)

    def _traffic(self) -> Slices:
        messages = _counter("countless_messages", "Messages from (up) and to (down) sites.", "counter", "direction")
        size = _counter("countless_message_bytes", "Bytes of frames from (up) and to (down) sites.", "direction")
        dropped = _counter("countless_dropped", "Rejected requests, connections and counters.", "reason")
        overflow = _counter("countless_label_overflow", "Labelled series counted in the overflow series.", "counter")
        for server in self._server.servers:
            for name, series in server.overflowed.items():
                overflow.add_metric([name], series)
        for number, (name, counter) in enumerate(list(self._server.by_name.items())):
            if number % ROWS_PER_SLICE == 0:
                yield None
            messages.add_metric([name, "up"], counter.traffic.up)
            messages.add_metric([name, "down"], counter.traffic.down)
        for direction in ("up", "down"):
            size.add_metric([direction], sum(server.frame_bytes[direction] for server in self._server.servers))
        for reason, total in self._server.dropped.items():
            dropped.add_metric([reason], total)
        replaced = _counter("countless_replaced", "Live connections and sessions continued by another process.", "what")
        for what in ("connection", "session"):
            replaced.add_metric([what], sum(server.replaced[what] for server in self._server.servers))
        yield from (messages, size, dropped, replaced, overflow)

    def _saves(self) -> Slices:
        servers, limits = self._server.servers, self._server.settings
        failures = _counter("countless_save_failures", "Attempts to save the state that failed.")
        failures.add_metric([], sum(server.health.failures for server in servers))
        behind = _gauge("countless_answers_behind_seconds", "Age of the answers while changes are not saved, else 0.")
        behind.add_metric([], max((server.health.behind_s for server in servers), default=0.0))
        tombstones = _gauge(
            "countless_tombstone_share", "Largest part of max_share of max_tombstone_mb that a token has used."
        )
        most = max((server.tombstones.largest for server in servers), default=0)  # of one site with one shard
        tombstones.add_metric([], most / (1e6 * limits.max_tombstone_mb * limits.max_share))
        labels = _gauge("countless_label_share", "Largest part of max_share of max_label_mb that a token uses.")
        most = max((server.families.label_shares.bytes.largest for server in servers), default=0)
        labels.add_metric([], most / (1e6 * limits.max_label_mb * limits.max_share))
        yield from (failures, behind, tombstones, labels)

    def _sites(self) -> Slices:
        sites = _gauge("countless_sites", "Incarnations of sites by state.", "state")
        last_seen = _gauge("countless_site_last_report_timestamp_seconds", "Time of a site's last frame.", "site")
        states: Tally[str] = Tally({"connected": 0, "away": 0, "silent": 0})
        latest: dict[str, float] = {}
        for number, session in enumerate(self._server.sessions):
            if number % ROWS_PER_SLICE == 0:
                yield None
            states[session.state] += 1
            name = str(session.site_id.site)
            latest[name] = max(latest.get(name, float("-inf")), session.last_seen)
        for state, total in states.items():
            sites.add_metric([state], total)
        offset = time() - self._server.now()
        for number, (name, moment) in enumerate(latest.items()):
            if number % ROWS_PER_SLICE == 0:
                yield None
            last_seen.add_metric([name], moment + offset)
        yield from (sites, last_seen)

    def _budgets(self) -> Slices:
        """Names that follow a template have no series of their own, but common ones: there may be thousands."""
        limit = _gauge("countless_budget_limit", "Units that all sites may spend together.", "budget")
        lower = _gauge("countless_budget_used_lower", "Units spent in this period, at least.", "budget")
        upper = _gauge("countless_budget_used_upper", "Units spent in this period, at most.", "budget")
        held = _gauge("countless_budget_held", "Units that sites held when they last reported.", "budget")
        leaked = _gauge("countless_budget_leaked", "Units of sites that ended without a report.", "budget")
        asks = _counter("countless_budget_asks", "Requests that got in line; of a template, by all names.", "budget")
        recalls = _counter("countless_budget_recalls", "Recalls of lent units; of a template, by all names.", "budget")
        names = _gauge("countless_budget_names", "Names that follow a template, by state.", "budget", "state")
        following: Tally[tuple[str, BudgetState]] = Tally()
        asked: Tally[str] = Tally()  # by template, or by name
        recalled: Tally[str] = Tally()
        for number, (name, budget) in enumerate(list(budgets_of(self._server).items())):
            if number % ROWS_PER_SLICE == 0:
                yield None
            usage = budget.usage
            asked[budget.rule.template or name] += budget.asks
            recalled[budget.rule.template or name] += budget.recalls
            if budget.rule.template is not None:
                following[budget.rule.template, usage.state] += 1
                continue
            limit.add_metric([name], usage.limit)
            if is_template(name):
                following.update({(name, state): 0 for state in BudgetState})
                continue
            lower.add_metric([name], usage.lower)
            upper.add_metric([name], usage.upper)
            held.add_metric([name], budget.held)
            leaked.add_metric([name], usage.leaked)
        for name in asked:
            asks.add_metric([name], asked[name])
            recalls.add_metric([name], recalled[name])
        for (template, state), total in following.items():
            names.add_metric([template, state], total)
        yield from (limit, lower, upper, held, leaked, asks, recalls, names)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)


class _Collected(NamedTuple):
    """The part of a registry that an encoder reads."""

    metrics: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


async def exposition(server: ServerView, accept: str, more: Iterable[Metric] = ()) -> tuple[bytes, str]:
    """The text and its content type: OpenMetrics if the `Accept` header asks for it, else Prometheus."""
    metrics = list(more)
    for metric in ServerCollector(server).collect_in_slices():
        if metric is None:
            await asyncio.sleep(0)
        else:
            metrics.append(metric)
    encoder, content_type = choose_encoder(accept)
    return await asyncio.to_thread(encoder, _Collected(metrics)), content_type


# The process, beside what it counts: processor, memory, files, connections, loop and saves


def process_metrics(state: AppState) -> Iterator[Metric]:
    """`state` is that of the application."""
    yield from ProcessCollector(registry=None).collect()  # process_cpu_seconds_total, process_resident_memory_bytes ...
    save_seconds = Timings.sum_of(server.health.save_seconds for server in state.server.servers)
    yield _histogram("countless_save_seconds", "Time that a save of changes took.", save_seconds)
    yield _histogram("countless_loop_lag_seconds", "How late the event loop is with what is due.", state.loop_lag)
    open_connections = getattr(state, "open_connections", None)
    if open_connections is not None:
        text = "Open connections to the port: of sites, readers and pages."
        yield GaugeMetricFamily("countless_open_connections", text, value=open_connections())


def _histogram(name: str, text: str, timings: Timings) -> Metric:
    return HistogramMetricFamily(name, text, buckets=list(timings.buckets()), sum_value=timings.total_s)


async def live(request: Request) -> Response:
    """The process responds; the response has its clock."""
    return json(Live(live=True, time=datetime.now(UTC).isoformat(timespec="milliseconds")))


async def ready(request: Request) -> Response:
    """False after a restart until sites have reported, while the state cannot be saved, and during shutdown.
    A site that is silent does not change this: whether a total can be trusted is the total's own state.
    """
    server: ServerView = request.app.state.server
    problems = ["learning after a restart"] if server.recovering else []
    problems += ["going down"] if server.draining else []
    problems += ["the state cannot be saved"] if server.failing else []
    return json(Ready(not problems, problems), 503 if problems else 200)


async def health(request: Request) -> Response:
    """The same as `/readyz`, under the name that some load balancers expect."""
    return await ready(request)


async def metrics(request: Request) -> Response:
    """Prometheus text, or OpenMetrics if the `Accept` header asks for it."""
    state = request.app.state
    page, content_type = await exposition(state.server, request.headers.get("accept", ""), process_metrics(state))
    return Response(page, headers={"content-type": content_type, "cache-control": "no-store"})


async def openapi(request: Request) -> Response:
    """This document."""
    return json(request.app.state.openapi)


PROBES = (
    Operation("GET", "/livez", None, live, Live),
    Operation("GET", "/readyz", None, ready, Ready, error_statuses=(503,)),
    Operation("GET", "/healthz", None, health, Ready, error_statuses=(503,)),
    Operation("GET", "/metrics", "operator", metrics, "text/plain"),
    Operation("GET", "/api/v1/openapi.json", None, openapi, "application/json"),
)
