"""Metrics of the process, beside those of what it counts: processor, memory, files, connections, loop and saves."""

from collections.abc import Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from starlette.datastructures import State

from countless.server.timings import Timings


def process_metrics(state: State) -> Iterator[Metric]:
    """`state` is that of the application."""
    yield from ProcessCollector(registry=None).collect()  # process_cpu_seconds_total, process_resident_memory_bytes ...
    yield _histogram("countless_save_seconds", "Time that a save of changes took.", state.server.save_seconds)
    yield _histogram("countless_loop_lag_seconds", "How late the event loop is with what is due.", state.loop_lag)
    open_connections = getattr(state, "open_connections", None)
    if open_connections is not None:
        text = "Open connections to the port: of sites, readers and pages."
        yield GaugeMetricFamily("countless_open_connections", text, value=open_connections())


def _histogram(name: str, text: str, timings: Timings) -> Metric:
    return HistogramMetricFamily(name, text, buckets=list(timings.buckets()), sum_value=timings.total_s)
