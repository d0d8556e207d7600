"""What the agent receives on one core: a real agent and a real coordinator, as fast as one sender can send."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import AF_INET, SOCK_DGRAM, socket
from tempfile import TemporaryDirectory
from time import perf_counter
from urllib.request import urlopen

from tools.tables import Table

SECONDS = 3.0
GUNICORN = b"app.gunicorn.requests:1|c|@1.0"
TAGGED = [b"bytes.%d:%d|c|@0.5|#route:/a,code:200" % (i % 50, 997 * i) for i in range(20_000)]
DATAGRAMS = {
    "one line each, all the same": [GUNICORN],
    "20 lines each, all the same": [b"\n".join([GUNICORN] * 20)],
    "20 lines each, no two the same, with a rate and two tags": [
        b"\n".join(TAGGED[i : i + 20]) for i in range(0, len(TAGGED), 20)
    ],
}


def start(stack: ExitStack, *arguments: str) -> tuple["subprocess.Popen[str]", list[str]]:
    command = [sys.executable, "-m", "countless.cli.main", *arguments]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))  # noqa: S603
    stack.callback(process.terminate)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[3:]


def metrics(http: str) -> dict[str, float]:
    with urlopen(f"{http}/metrics") as response:  # noqa: S310
        lines = [line.rpartition(" ") for line in response.read().decode().splitlines() if line[0] != "#"]
    return {name.partition("{socket")[0]: float(value) for name, _, value in lines}


def cpu(pid: int) -> float:
    """Seconds on a processor so far, all threads and the kernel's part included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def flood(statsd: str, datagrams: list[bytes]) -> int:
    host, _, port = statsd.removeprefix("udp://").rpartition(":")
    sent, end = 0, perf_counter() + SECONDS
    with socket(AF_INET, SOCK_DGRAM) as sender:
        sender.connect((host, int(port)))
        while perf_counter() < end:
            for datagram in datagrams * (100 // len(datagrams) + 1):
                sender.send(datagram)
                sent += 1
    return sent


def measure(pid: int, statsd: str, http: str, datagrams: list[bytes]) -> tuple[float, float, float]:
    """Datagrams and lines per second of the agent's processor time, and the part that the kernel dropped."""
    before, spent = metrics(http), cpu(pid)
    sent = flood(statsd, datagrams)
    read = lost = 0.0
    while read + lost < sent:
        now = metrics(http)
        read, lost, lines = (
            now[name] - before[name]
            for name in (f"countless_agent_{what}_total" for what in ("datagrams", "kernel_drops", "lines"))
        )
    used = cpu(pid) - spent
    return read / used, lines / used, lost / sent


def main() -> Iterator[Table]:
    rows = []
    with TemporaryDirectory() as state, ExitStack() as stack:
        _, (url,) = start(stack, "serve", "--open", "--port", "0", "--state-dir", state)
        agent, (statsd, http) = start(stack, "agent", "--url", url, "--statsd-port", "0", "--http-port", "0")
        for name, datagrams in DATAGRAMS.items():
            received, lines, lost = measure(agent.pid, statsd, http, datagrams)
            rows.append((name, f"{received:,.0f}", f"{lines:,.0f}", f"{lost:.1%}"))
    yield Table("agent", ("datagrams", "datagrams/s", "lines/s", "dropped by the kernel"), rows)
