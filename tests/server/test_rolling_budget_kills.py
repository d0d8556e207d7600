"""A rolling budget that real processes spend as fast as they can, while they and the coordinator are killed.

A program appends the moments before and after each request that is admitted to a file, by a clock that all processes
share. So an interval that holds both moments certainly holds the request.
"""

import signal
from bisect import bisect_left
from pathlib import Path
from time import monotonic

import pytest

from countless.randomness import SeededRandom
from support.service import TIMEOUT_S, Server, python, until

SITES = 3
LIMIT = 120
WINDOW_S = 1.0
SPENDING = """
import countless, os, sys, threading
from time import monotonic

witness = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
client = countless.connect()
budget = client.budget("logins")
ended, pause = threading.Event(), threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("spending", flush=True)
while not ended.is_set():
    before = monotonic()
    if budget.take(1, wait=0):
        os.write(witness, f"{before!r} {monotonic()!r}\\n".encode())
    else:
        pause.wait(0.002)
print(client.close(90), flush=True)
"""


class Site:
    def __init__(self, server: Server, directory: Path, name: str) -> None:
        self._server = server
        self.witness = directory / f"{name}.witness"
        self._variables = {
            "COUNTLESS_SITE": name,
            "COUNTLESS_CLIENT_STATE_DIR": str(directory / name),
            "WITNESS": str(self.witness),
        }
        self.start()

    def start(self) -> None:
        self._process = python(SPENDING, self._server.url, **self._variables)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "spending\n"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate(timeout=TIMEOUT_S)

    def leave(self) -> None:
        output, _ = self._process.communicate("", timeout=2 * TIMEOUT_S)
        assert output == "True\n"


def admitted(sites: list[Site]) -> list[tuple[float, float]]:
    """The moments before and after each request that was admitted."""
    lines = [line for site in sites if site.witness.exists() for line in site.witness.read_text().splitlines()]
    return sorted((float(before), float(after)) for before, after in map(str.split, lines))


def most_in_an_interval(requests: list[tuple[float, float]]) -> int:
    """Requests that are certainly in one interval as long as the window."""
    most, starts = 0, [before for before, _ in requests]
    for first, start in enumerate(starts):
        last = bisect_left(starts, start + WINDOW_S)
        most = max(most, sum(after <= start + WINDOW_S for _, after in requests[first:last]))
    return most


def spend(directory: Path, kills: list[int]) -> None:
    """Each kill is the number of a site, or SITES: the coordinator."""
    with Server(directory / "coordinator", "--silent-after", "1s") as server:
        rule = {"name": "logins", "limit": LIMIT, "slack": 0, "rolling": "1s"}
        server.reader.request("POST", "/api/v1/budgets", rule)
        sites = [Site(server, directory, f"web-{number}") for number in range(SITES)]
        until(lambda: admitted(sites), "a request that is admitted")
        for victim in kills:
            killed = monotonic()
            if victim == SITES:
                server.kill()
                server.start()
            else:
                sites[victim].kill()
                sites[victim].start()
            until(lambda: monotonic() > killed + WINDOW_S / 3, "a part of a window")  # noqa: B023
        for site in sites:
            site.leave()
    assert most_in_an_interval(admitted(sites)) <= LIMIT


@pytest.mark.soak
def test_killed_sites_and_coordinator_never_admit_more_than_the_limit_in_a_window(tmp_path: Path) -> None:
    spend(tmp_path, [0, SITES, 1])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_random_kills_never_admit_more_than_the_limit_in_a_window(tmp_path: Path, seed: int) -> None:
    rng = SeededRandom(seed)
    spend(tmp_path, [rng.randbelow(SITES + 1) for _ in range(12)])
