"""What a program pays to count one event, next to what it would pay elsewhere."""

import statsd  # type: ignore[import-untyped]
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, Counter

import countless
from bench.hot_path import side_by_side

YARDSTICK = "prometheus_client inc()"


def main(url: str) -> None:
    client = countless.connect(url, site="bench")
    ours = client.counter("bench")
    for series in (ours, ours.labels(route="/a")):
        series.add(10**12)  # the next report is far away: what remains is the hot path
    assert client.flush(60)
    theirs = Counter("bench", "bench", ["route"], registry=CollectorRegistry())
    plain = Counter("plain", "plain", registry=CollectorRegistry())
    otel = MeterProvider([InMemoryMetricReader()]).get_meter("bench").create_counter("bench")
    udp = statsd.StatsClient("127.0.0.1", 9)
    costs = side_by_side(
        {
            "countless add()": (ours.add, 200_000),
            "countless labels(...).add()": (lambda: ours.labels(route="/a").add(), 50_000),
            YARDSTICK: (plain.inc, 200_000),
            "prometheus_client labels().inc()": (lambda: theirs.labels(route="/a").inc(), 20_000),
            "OpenTelemetry add(1)": (lambda: otel.add(1), 20_000),
            "statsd incr() over UDP": (lambda: udp.incr("bench"), 10_000),
        }
    )
    client.close(60)
    print(f"what a program pays for an event, in processor time; the ratio is to {YARDSTICK} (bar 0.25)")
    for what, cost in costs.items():
        print(f"  {what:34} {cost:8.0f} ns   {cost / costs[YARDSTICK]:6.2f}")
