"""The metrics of a coordinator, from the collector that `/metrics` uses."""

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import CounterMetricFamily
from starlette.datastructures import State

from countless.server.http.monitoring import ServerCollector, process_metrics
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.storage.memory_store import MemoryStore
from countless.server.timings import Timings

HEAD = """# Metrics

This page lists every metric of a coordinator, and expressions for alerts.

*Written by `python -m tools.reference`.*

`GET /metrics` needs the scope `operator`, because message counts reveal the random choices that the
bounds rely on ([threat model](../understand/threat-model.md)). The format is Prometheus text, or
OpenMetrics if the `Accept` header asks for it.

## Expressions for alerts

| expression | true if |
|---|---|
| `countless_count_upper > 1e6` | the total is possibly over a million |
| `countless_count_lower > 1e6` | the total is over a million, with probability `1 - delta` |
| `countless_answer_state{state="degraded"} == 1` | a site of the counter is silent; `countless site list` names it |
| `countless_answers_behind_seconds > 0` | it [can't save](../operate/failures.md#the-coordinator-cant-save) |
| `countless_budget_used_lower > 0.9 * countless_budget_limit` | more than 90 % of a budget is certainly spent |

`deploy/prometheus/countless-alerts.yaml` has [alert rules](../operate/failures.md#alerts) for what goes wrong, and
`deploy/grafana/countless.json` is a [dashboard](../operate/monitor.md#metrics-dashboard-and-alerts).

## All metrics

| metric | meaning |
|---|---|
"""
TAIL = """
`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`, `process_max_fds` and
`process_start_time_seconds` are the usual ones.

`countless_count_total` doesn't fall over restarts and new settings either; after a restore from a backup it may, once.
Deleting a counter ends its series. One that is created later under this name starts at zero, a reset to Prometheus.

All metrics except the answers and budgets count from the start of the process. Sites decide which requests for units to
admit, and don't report their decisions: the [agent](../guides/other-languages.md#probes-and-metrics) has metrics of its
own, and a Python program knows `take(...).reason`.

`rate(countless_messages_total[1h])` is the number of messages a second.
"""


def page() -> str:
    rows = []
    server = SiteServer(MemoryStore(), Settings())
    state = State({"server": server, "loop_lag": Timings(), "open_connections": lambda: 0})
    families: Iterable[Any] = (*ServerCollector(server).collect(), *process_metrics(state))
    for family in families:
        if family.name.startswith("process_"):
            continue
        name = f"{family.name}_total" if isinstance(family, CounterMetricFamily) else family.name
        labels = f"{{{','.join(family._labelnames)}}}" if family._labelnames else ""
        rows.append(f"| `{name}{labels}` | {family.documentation.removesuffix('.')} |")
    return HEAD + "\n".join(rows) + "\n" + TAIL
