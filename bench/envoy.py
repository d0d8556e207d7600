"""What the agent costs a request through Envoy: the same requests through one with the filter, and one without.

It needs what `make integrations` installs; `make bench-envoy` runs it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter
from typing import Any

from bench.agent import cpu
from real_libraries.envoys import Envoy, GatewayAgent
from support.service import Server
from tools.tables import Table

REQUESTS, ROUNDS = 500, 20
LOAD, THREADS = 4_000, 8
RULES = '[[envoy.limits]]\ndomain = "edge"\ndescriptor = ["remote_address"]\nbudget = "addresses/{remote_address}"\n'
ACTIONS: list[Any] = [{"actions": [{"remote_address": {}}]}]


def latencies(envoy: Envoy, requests: int) -> list[float]:
    """Milliseconds, one request after the other."""
    found = []
    with closing(HTTPConnection(envoy.address)) as connection:
        for _ in range(requests):
            start = perf_counter()
            connection.request("GET", "/")
            response = connection.getresponse()
            response.read()
            found.append((perf_counter() - start) * 1000)
            if response.status != 200:
                raise RuntimeError(f"{response.status} instead of 200")
    return found


def per_second(envoy: Envoy, pid: int) -> float:
    """Requests for a second of the processor time of this process."""
    before = cpu(pid)
    threads = [Thread(target=latencies, args=(envoy, LOAD // THREADS)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return LOAD / (cpu(pid) - before)


def main() -> Iterator[Table]:
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        server = stack.enter_context(Server(folder / "server"))
        rule = {"name": "addresses/*", "limit": 10**9, "per": "hour"}
        server.reader.request("POST", "/api/v1/budgets", rule)
        agent = stack.enter_context(GatewayAgent(server.url, folder / "agent", RULES))
        origin = stack.enter_context(Envoy(folder / "origin", None))
        options = {"with": (agent.listen, ACTIONS), "without": (None, ())}
        envoys = {
            name: stack.enter_context(Envoy(folder / name, origin.address, *rest)) for name, rest in options.items()
        }
        measured: dict[str, list[float]] = {name: [] for name in envoys}
        for envoy in envoys.values():
            latencies(envoy, REQUESTS)  # connections and the share of the budget
        for _ in range(ROUNDS):  # by turns, because the machine has other work
            for name, envoy in envoys.items():
                measured[name] += latencies(envoy, REQUESTS)
        speed = {name: per_second(envoy, envoy.process.pid) for name, envoy in envoys.items()}
        decisions = per_second(envoys["with"], agent.process.pid)
    ordered = {name: sorted(values) for name, values in measured.items()}
    rows = [
        (f"p{part} of a request, ms", *(f"{values[len(values) * part // 100]:.2f}" for values in ordered.values()))
        for part in (50, 99)
    ]
    rows.append(("requests for a second of Envoy's processor time", *(f"{speed[name]:,.0f}" for name in envoys)))
    rows.append(("decisions for a second of the agent's processor time", f"{decisions:,.0f}", ""))
    yield Table("envoy", ("", "with the filter", "without"), rows)
