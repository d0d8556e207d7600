"""A real coordinator for the benches of the service."""

import os
import subprocess
import sys
from pathlib import Path

from countless.client.api import ApiClient

_TICKS = os.sysconf("SC_CLK_TCK")


class Coordinator:
    """A `countless serve` process, and what the system says of its time and memory."""

    def __init__(self, directory: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "countless.cli.main", "serve", "--open", "--port", str(port)]
        command += ["--state-dir", directory]
        self.process = subprocess.Popen([*command, "--silent-after", "12h"], stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]
        self.port = int(self.url.rpartition(":")[2])
        self.reader = ApiClient(self.url, timeout=60)

    @property
    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def kilobytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])
