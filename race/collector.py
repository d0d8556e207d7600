"""The collector: a process that receives OpenTelemetry pushes and statsd datagrams, and scrapes Prometheus clients.

    python -m race.collector OTLP_PORT STATSD_PORT CONTROL_PORT

It replaces an OpenTelemetry collector, a statsd daemon and a Prometheus server, with real sockets: OTLP over HTTP, UDP
datagrams, HTTP scrapes with the headers of Prometheus. It keeps the last cumulative value of each series of each
instance and, for statsd, the sums since they were last taken. Requests come on the control port, one JSON line each.
"""

import gzip
import json
import select
import socket
import sys
from collections import Counter as Tally
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Lock, Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from race.wire import bytes_of

SCRAPE_HEADERS = {  # of Prometheus 2.5x
    "User-Agent": "Prometheus/2.53.0",
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}

Series = tuple[str, str]  # instance, counter


class Collected:
    """What has arrived."""

    def __init__(self, statsd_port: int) -> None:
        self._lock = Lock()
        self._cumulative: dict[Series, int] = {}
        self._increments: Tally[str] = Tally()
        self.messages = self.bytes = 0
        self._connections: set[socket.socket] = set()
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.bind(("127.0.0.1", statsd_port))
        self._datagrams.setblocking(False)

    # OpenTelemetry

    def exported(self, request: ExportMetricsServiceRequest) -> None:
        """One push of one instance: all its counters, cumulative."""
        with self._lock:
            self.messages += 1
            for resource in request.resource_metrics:
                attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in metric.sum.data_points:
                            self._cumulative[attributes["service.instance.id"], metric.name] = point.as_int

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def ended(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
            self.bytes += bytes_of(connection)

    # Prometheus

    def scrape(self, ports: list[int]) -> None:
        for port in ports:
            connection = HTTPConnection("127.0.0.1", port)
            connection.connect()
            wire = connection.sock.dup()  # the target closes the connection after each response
            connection.request("GET", "/metrics", headers=SCRAPE_HEADERS)
            response = connection.getresponse()
            page = response.read()
            with self._lock:
                self.messages += 1
                self.bytes += bytes_of(wire)
                if response.headers.get("Content-Encoding") == "gzip":
                    page = gzip.decompress(page)
                for family in text_string_to_metric_families(page.decode()):  # type: ignore[no-untyped-call]
                    for sample in family.samples:
                        if sample.name.endswith("_total"):
                            self._cumulative[str(port), sample.name.removesuffix("_total")] = int(sample.value)
            wire.close()
            connection.close()

    # statsd

    def listen(self) -> None:
        while True:
            select.select([self._datagrams], [], [])
            self.drain()

    def drain(self) -> None:
        """Take all datagrams in the socket's queue: on loopback a datagram is there, or lost, when it was sent."""
        with self._lock:
            for data in self._queued():
                self.messages += 1
                self.bytes += len(data)
                for line in data.decode().split("\n"):
                    name, _, rest = line.partition(":")
                    value, _, kind = rest.partition("|")
                    if kind == "c":
                        self._increments[name] += int(value)

    def _queued(self) -> Iterator[bytes]:
        while True:
            try:
                yield self._datagrams.recv(65_536)
            except BlockingIOError:
                return

    # Requests of the race

    def totals(self) -> dict[str, int]:
        """Last cumulative values, summed over instances."""
        sums: Tally[str] = Tally()
        with self._lock:
            for (_, counter), value in self._cumulative.items():
                sums[counter] += value
        return sums

    def take(self) -> dict[str, int]:
        """What statsd has counted since the last call."""
        self.drain()
        with self._lock:
            taken, self._increments = self._increments, Tally()
        return taken

    def traffic(self) -> list[int]:
        """Messages and bytes so far."""
        with self._lock:
            return [self.messages, self.bytes + sum(map(bytes_of, self._connections))]


def otlp_server(collected: Collected, port: int) -> ThreadingHTTPServer:

    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open, as with a real collector

        def setup(self) -> None:
            super().setup()
            collected.opened(self.connection)

        def finish(self) -> None:
            collected.ended(self.connection)
            super().finish()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collected.exported(ExportMetricsServiceRequest.FromString(body))
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Receiver)


class Control(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def control_server(collected: Collected, port: int) -> Control:

    class Requests(StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                verb, *arguments = json.loads(line)
                answer = getattr(collected, verb)(*arguments)
                self.wfile.write(json.dumps(answer).encode() + b"\n")

    return Control(("127.0.0.1", port), Requests)


def main(otlp: int, statsd: int, control: int) -> None:
    collected = Collected(statsd)
    Thread(target=collected.listen, daemon=True).start()
    Thread(target=otlp_server(collected, otlp).serve_forever, daemon=True).start()
    control_server(collected, control).serve_forever()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
