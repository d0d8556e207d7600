"""Prometheus: prometheus_client with one registry and one HTTP port for each site, scraped every 15 seconds.

A registry holds the race's counters and nothing else; the collectors of process and platform, which a real target
exposes too, would multiply the bytes.
"""

from prometheus_client import CollectorRegistry, Counter, start_http_server

from race.contestants.base import Answers, Case, Contestant, Fleet, counter_name
from race.contestants.collected import ScrapingBackend
from race.workloads import Event


class PrometheusFleet(Fleet):
    """One target for each site."""

    def __init__(self, address: str, case: Case) -> None:
        self._counters = []
        self._servers = []
        for _ in range(case.sites):
            registry = CollectorRegistry()
            self._counters.append(
                [Counter(counter_name(counter), "Events.", registry=registry) for counter in range(case.counters)]
            )
            self._servers.append(start_http_server(0, "127.0.0.1", registry))
        self.targets = tuple(server.server_port for server, _ in self._servers)

    def count(self, event: Event) -> Answers:
        counters = self._counters[event.site]
        for counter in event.counters:
            counters[counter].inc()
        return []

    def close(self) -> None:
        for server, thread in self._servers:
            server.shutdown()
            server.server_close()
            thread.join()


PROMETHEUS = Contestant("Prometheus, 15 s", ScrapingBackend, PrometheusFleet, 15.0)
