"""OpenTelemetry: the SDK with its OTLP/HTTP exporter, one provider for each site, a push every 60 seconds.

Interval and temporality (cumulative) are the SDK's defaults. The periodic reader's own timer is off; the push is asked
for at the virtual time, by the call that the timer makes.
"""

import math

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from race.contestants.base import Answers, Case, Contestant, Fleet, counter_name
from race.contestants.collected import PushedBackend
from race.workloads import Event


class OtelFleet(Fleet):
    """One meter provider for each site."""

    def __init__(self, address: str, case: Case) -> None:
        endpoint = f"http://127.0.0.1:{address.split(':')[0]}/v1/metrics"
        self._readers = [
            PeriodicExportingMetricReader(OTLPMetricExporter(endpoint), export_interval_millis=math.inf)
            for _ in range(case.sites)
        ]
        self._providers = [
            MeterProvider([reader], Resource.create({"service.instance.id": str(site)}), shutdown_on_exit=False)
            for site, reader in enumerate(self._readers)
        ]
        names = [counter_name(counter) for counter in range(case.counters)]
        self._counters = [
            [provider.get_meter("race").create_counter(name) for name in names] for provider in self._providers
        ]

    def count(self, event: Event) -> Answers:
        counters = self._counters[event.site]
        for counter in event.counters:
            counters[counter].add(1)
        return []

    def tick(self, now: float) -> None:
        for reader in self._readers:
            reader.force_flush()

    def close(self) -> None:
        for reader in self._readers:
            reader._exporter.shutdown()


OTEL = Contestant("OpenTelemetry, 60 s", PushedBackend, OtelFleet, 60.0)
