"""The coordinator under load: 10,000 connected sites, 1,000 counters, one real `countless serve`.

Everything is on this machine, so the sites take processor time away from the coordinator. The coordinator's own
processor time is measured beside the wall clock: reports per second of it is what one core takes in.
"""

import json
import os
import resource
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from multiprocessing import get_context
from statistics import quantiles
from threading import Condition, Thread
from time import perf_counter, sleep
from typing import Any, NamedTuple

from bench import adds, figures, fleet, outage
from bench.coordinator import Coordinator
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketConnection
from countless.core.messages import Report
from countless.wire.frames import VERSION, Hello, Join, encode_frames
from tools.tables import Table

SITES, COUNTERS, PROCESSES = 10_000, 1_000, 2
SECONDS = 10.0
HALF_LOAD = 20_000  # reports a second


class Fleets:
    """Some processes that share the sites between them."""

    def __init__(self, port: int) -> None:
        context = get_context("spawn")
        self._pipes = []
        self._processes = []
        for _ in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=fleet.main, args=(port, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def all(self, order: str, *arguments: Any) -> list[Any]:
        """The same order for every process."""
        return self.each(order, [arguments] * PROCESSES)

    def each(self, order: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        for pipe, own in zip(self._pipes, arguments, strict=True):
            pipe.send((order, own))
        return [pipe.recv() for pipe in self._pipes]

    def stop(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(("stop", ()))
            process.join()


class Probe:
    """A site that counts one by one, and a reader that watches its answer: the time from report to visible answer."""

    def __init__(self, coordinator: Coordinator) -> None:
        coordinator.reader.request("POST", "/api/v1/counters", {"name": "probe", "scheme": "exact"})
        self._link = WebSocketConnection(Endpoint.parse(coordinator.url), None)
        self._link.send(next(encode_frames([Hello(VERSION, "probe", 1 << 60), Join("probe", 0, 0)])))
        self._count = 0
        self._seen = 0
        self._changed = Condition()
        self._connection = HTTPConnection("127.0.0.1", coordinator.port)
        Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        self._connection.request("GET", "/api/v1/watch/probe")
        for line in self._connection.getresponse():
            if line.startswith(b"data: "):
                with self._changed:
                    self._seen = json.loads(line[6:])["estimate"]
                    self._changed.notify()

    def milliseconds(self, seconds: float) -> list[float]:
        """One report after the other, about fifty a second."""
        times, end = [], perf_counter() + seconds
        while perf_counter() < end:
            self._count += 1
            frame = next(encode_frames([Report("probe", 0, self._count, self._count)]))
            start = perf_counter()
            self._link.send(frame)
            with self._changed:
                assert self._changed.wait_for(lambda: self._seen >= self._count, 60)
            times.append(1000 * (perf_counter() - start))
            sleep(max(0.0, 0.02 - times[-1] / 1000))
        return times


@contextmanager
def running() -> Iterator[tuple[Coordinator, Fleets]]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory() as directory:
        coordinator = Coordinator(directory)
        fleets = Fleets(coordinator.port)
        try:
            yield coordinator, fleets
        finally:
            fleets.stop()
            coordinator.process.terminate()
            coordinator.process.wait()


def memory(coordinator: Coordinator, fleets: Fleets, scheme: str) -> None:
    empty = coordinator.kilobytes
    for number in range(COUNTERS):
        coordinator.reader.request("POST", "/api/v1/counters", {"name": f"counter-{number}", "scheme": scheme})
    counters = coordinator.kilobytes
    share = SITES // PROCESSES
    fleets.each("connect", [(number * share, share, COUNTERS) for number in range(PROCESSES)])
    connected = coordinator.kilobytes
    fleets.all("join")
    joined = coordinator.kilobytes
    print(f"empty coordinator               {empty / 1000:8.1f} MB")
    print(f"a counter                       {(counters - empty) / COUNTERS:8.1f} kB")
    print(f"a connected site                {(connected - counters) / SITES:8.1f} kB   (bar 40)")
    each = (joined - connected) / (SITES * fleet.COUNTERS_EACH)
    print(f"a counter at a site             {each:8.1f} kB   ({fleet.COUNTERS_EACH} counters at each site)")
    total = (joined - counters) / SITES
    figures.add("kB", {"an empty coordinator": empty, "a connected site": (connected - counters) / SITES})
    figures.add("kB", {"a counter": (counters - empty) / COUNTERS, "a counter at a site": each})
    print(f"a connected site with these     {total:8.1f} kB", flush=True)


def warm_up(fleets: Fleets) -> None:
    """Plans are computed once, when a fleet has connected. Without this they would be measured too."""
    fleets.all("load", 2_000, SECONDS, 1)


class Figures(NamedTuple):
    """What was measured with so many reports in a frame."""

    per_frame: int
    per_cpu_second: float  # reports per second of the coordinator's processor time
    per_second: float  # reports
    p50_ms: float  # from report to visible answer, at half load
    p99_ms: float


def ingest(coordinator: Coordinator, fleets: Fleets, per_frame: int) -> tuple[float, float]:
    """Reports per second of the coordinator's processor time, and per second."""
    before = coordinator.processor_seconds
    results = fleets.all("load", 0, SECONDS, per_frame)
    used = coordinator.processor_seconds - before
    sent, seconds = int(sum(number for number, _ in results)), max(seconds for _, seconds in results)
    figures.add("processor µs of a report", {f"{per_frame} in a frame": 1e6 * used / sent})
    print(
        f"{per_frame:>2} reports in a frame: {sent / used:10,.0f} reports a processor second (bar 40,000), "
        f"{sent / seconds:,.0f} a second ({sent:,} reports in {seconds:.1f} s, {used:.1f} s of them at work)",
        flush=True,
    )
    return sent / used, sent / seconds


def latency(coordinator: Coordinator, fleets: Fleets, probe: Probe, per_frame: int) -> tuple[float, float]:
    """Milliseconds from report to visible answer at half load: p50 and p99."""
    times: list[float] = []
    prober = Thread(target=lambda: times.extend(probe.milliseconds(SECONDS)))
    prober.start()
    before = coordinator.processor_seconds
    results = fleets.all("load", HALF_LOAD / PROCESSES, SECONDS, per_frame)
    used = coordinator.processor_seconds - before
    prober.join()
    p50, p99 = print_times(f"at {HALF_LOAD:,} reports a second, {per_frame} in a frame", times)
    print(f"  ({sum(sent for sent, _ in results):,} reports, {used:.1f} s at work)", flush=True)
    return p50, p99


def print_times(when: str, times: list[float]) -> tuple[float, float]:
    cuts = quantiles(times, n=100)
    print(f"report to visible answer, {when}: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms (bar 50) of {len(times)}")
    return cuts[49], cuts[98]


def table(name: str, measured: Sequence[Figures]) -> Table:
    """A column for each number of reports in a frame."""
    columns = ("", *(f"{each.per_frame} report{'s' * (each.per_frame > 1)} in a frame" for each in measured))
    when = f"from report to visible answer, at {HALF_LOAD:,} reports a second"
    rows = {
        "reports per processor second of the coordinator": [f"{each.per_cpu_second:,.0f}" for each in measured],
        "reports a second": [f"{each.per_second:,.0f}" for each in measured],
        f"p50 {when}": [f"{each.p50_ms:.0f} ms" for each in measured],
        f"p99 {when}": [f"{each.p99_ms:.0f} ms" for each in measured],
    }
    return Table(name, columns, [(what, *cells) for what, cells in rows.items()])


def truth(coordinator: Coordinator, fleets: Fleets) -> None:
    """Every answer is within its bounds, after the load, once all snapshots have arrived."""
    while any(answer["state"] == "learning" for answer in coordinator.reader.counters()):
        sleep(0.1)
    counted: dict[str, int] = {}
    for part in fleets.all("counted"):
        for name, count in part.items():
            counted[name] = counted.get(name, 0) + count
    answers = {answer["counter"]: answer for answer in coordinator.reader.counters()}
    wrong = [name for name, n in counted.items() if not answers[name]["lower"] <= n <= answers[name]["upper"]]
    print(f"{len(counted):,} counters, {sum(counted.values()):,} events: {len(wrong)} answers out of their bounds")


def main() -> Iterator[Table]:
    """Every message of `deterministic` is a report, so this is what a report costs; `rounds` measures rounds too."""
    yield table("load", measure("deterministic"))
    yield outage.measure()


def rounds() -> Iterator[Table]:
    """The same with rounds: all counters grow alike here, so a thousand of them start a round in the same second."""
    yield table("load-rounds", measure("dithered"))


def measure(scheme: str) -> list[Figures]:
    busy = os.getloadavg()[0]
    print(f"{os.cpu_count()} processors, load {busy:.1f} before the run: with others at work, read processor seconds")
    sizes = (fleet.COUNTERS_EACH, 1)
    with running() as (coordinator, fleets):
        memory(coordinator, fleets, scheme)
        warm_up(fleets)
        probe = Probe(coordinator)
        print_times("idle", probe.milliseconds(2))
        times = [latency(coordinator, fleets, probe, per_frame) for per_frame in sizes]
        rates = [ingest(coordinator, fleets, per_frame) for per_frame in sizes]
        truth(coordinator, fleets)
        adds.main(coordinator.url)
    return [Figures(size, *rate, *time) for size, rate, time in zip(sizes, rates, times, strict=True)]
