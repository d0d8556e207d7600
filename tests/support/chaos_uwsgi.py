"""uWSGI for `chaos`: its module makes the client and counts; its workers, forked in C, count and spend in requests.

Each process has a witness of its own. What the master has counted is delivered by the next process.
"""

import os
import sys
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from shutil import rmtree
from threading import Event, Thread
from time import monotonic_ns

import countless
from support.chaos_worker import KINDS_BESIDE_COUNTERS, Witness
from support.service import until
from support.uwsgi import WORKERS, Uwsgi

CLOSE_TIMEOUT_S = 120.0
APPLICATION = """
import os, time
from pathlib import Path
file, real_time = Path(os.environ["COUNTLESS_CLOCK_FILE"]), time.time
time.time = lambda: real_time() + float(file.read_text() or 0)  # before the client imports it

import countless
from support.chaos_worker import Program
from support.chaos_uwsgi import witness_of_process
counters = int(os.environ["CHAOS_COUNTERS"])
program = Program(countless.connect(site=os.environ["CHAOS_SITE"]), counters, int(os.environ["CHAOS_SEED"]))
directory = Path(os.environ["CHAOS_WITNESSES"])
witness = witness_of_process(directory, counters)
for _ in range(100):
    program.count_something(witness)
loaded_by = os.getpid()

def app(environ, start_response):
    global witness, loaded_by
    if loaded_by != os.getpid():
        witness, loaded_by = witness_of_process(directory, counters), os.getpid()
    for _ in range(200):
        program.do_something(witness)
    start_response("200 OK", [("content-type", "text/plain")])
    return [f"{os.getpid()} 1".encode()]
"""


def witness_of_process(directory: Path, counters: int) -> Witness:
    return Witness.create(directory / f"{os.getpid()}-{monotonic_ns()}", counters + KINDS_BESIDE_COUNTERS)


class UwsgiProgram:
    """As `chaos.Worker`: killed, all of it starts again."""

    def __init__(self, directory: Path, url: str, counters: int, durable: bool) -> None:
        self.counters = counters
        self.directory = directory
        self._url = url
        self._durable = durable
        self._starts = 0
        self._witnesses = directory.with_suffix(".witnesses")
        self._witnesses.mkdir()
        self.clock = directory.with_suffix(".clock")
        self.clock.write_text("0")
        self.start()
        self._closed = Event()
        self._askers = [Thread(target=self._ask, daemon=True) for _ in range(WORKERS)]
        for thread in self._askers:
            thread.start()

    def start(self) -> None:
        self._starts += 1
        place = self.directory.with_suffix(".uwsgi")
        rmtree(place, ignore_errors=True)
        place.mkdir()
        self.web = Uwsgi(
            *(place, self._url, "default", "--enable-threads"),
            state_dir=self.directory if self._durable else None,
            application=APPLICATION,
            PYTHONPATH=os.pathsep.join([*sys.path[1:], str(Path(__file__).parent.parent)]),
            COUNTLESS_CLOCK_FILE=str(self.clock),
            CHAOS_COUNTERS=str(self.counters),
            CHAOS_SEED=str(self._starts),
            CHAOS_SITE=self.directory.name,
            CHAOS_WITNESSES=str(self._witnesses),
        )
        self.process = self.web.process

    def _ask(self) -> None:
        while not self._closed.wait(0.01):
            with suppress(OSError, HTTPException, ValueError):  # it is killed, or starts
                self.web.get()

    def kill(self) -> None:
        self.web.kill()

    def close(self) -> None:
        self._closed.set()
        for thread in self._askers:
            thread.join(CLOSE_TIMEOUT_S)
        self.web.stop()

    def finish(self) -> bool:
        """Deliver what the master, and workers that were too slow, have left."""
        if not self._durable:
            return True
        with countless.connect(self._url, site=self.directory.name, state_dir=self.directory) as client:
            until(lambda: len(list(self.directory.iterdir())) == 1, "the end of the delivery")
            return client.close(CLOSE_TIMEOUT_S)

    def bounds(self, kind: int) -> tuple[int, int]:
        each = [Witness(path).bounds(kind) for path in self._witnesses.iterdir()]
        return sum(lower for lower, _ in each), sum(upper for _, upper in each)
