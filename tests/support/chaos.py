"""Real processes under every fault at once, for as long as you like: nothing is lost, and nothing is counted twice.

python -m support.chaos --minutes 10 --seed 1

One coordinator, behind a network that fails, and programs with a `state_dir` that count and spend; one of them has
9,000 counters, and one is a uWSGI, which forks its workers in C. The coordinator, the programs and single workers are
killed and stopped, connections are cut, the coordinator's clock jumps by up to 800 days, and those of the programs by
some hours. At the end everything heals, all programs close, and every count is compared with the witnesses.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter as Tally
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import IO

import countless.cli.main
from countless.randomness import SeededRandom
from support.chaos_uwsgi import CLOSE_TIMEOUT_S, UwsgiProgram
from support.chaos_worker import KINDS_BESIDE_COUNTERS, LABELS, Witness
from support.forked import ForkedCommand
from support.proxy import HEALTHY, FaultProfile, Proxy
from support.service import Server, environment, until

FOLDER = Path(__file__).parent
COUNTERS = (9_000, 20, 20, 20)  # of each program
UWSGI_COUNTERS = 20
LIMIT = 20_000  # of the budget
WORKER = FOLDER / "jumping_clock.py", FOLDER / "chaos_worker.py"
DAY_S, HOUR_S = 86_400, 3_600


class JumpingServer(Server):
    def _launch(self, arguments: list[str]) -> "subprocess.Popen[str]":
        command = [sys.executable, "-P", str(FOLDER / "jumping_clock.py"), countless.cli.main.__file__, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())


class Worker:
    """A program with its own directory and witness. Killed, it starts again with the same ones."""

    def __init__(self, directory: Path, url: str, counters: int, durable: bool) -> None:
        self.counters = counters
        self.directory = directory
        self._url = url
        self._durable = durable
        self._starts = 0
        self.witness = Witness.create(directory.with_suffix(".witness"), counters + KINDS_BESIDE_COUNTERS)
        self.clock = directory.with_suffix(".clock")
        self.clock.write_text("0")
        self.start()

    def start(self) -> None:
        self._starts += 1
        arguments = [self.directory.name, str(self.directory) if self._durable else "-"]
        arguments += [str(self.directory.with_suffix(".witness")), str(self.counters)]
        self.process = subprocess.Popen(
            [sys.executable, "-P", *map(str, WORKER), *arguments, str(self._starts)],
            env=environment(COUNTLESS_URL=self._url, COUNTLESS_CLOCK_FILE=str(self.clock)),
            stdout=subprocess.PIPE,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._output.close()

    def close(self) -> None:
        self._output.readline()  # it was perhaps started a moment ago: SIGTERM would end it before it delivers
        self.process.send_signal(signal.SIGTERM)

    def finish(self) -> bool:
        """Whether it could deliver its counts."""
        return self.process.wait(CLOSE_TIMEOUT_S) == 0

    @property
    def _output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def bounds(self, kind: int) -> tuple[int, int]:
        """Of a counter. The counter with windows, the labels and the budget come after all others."""
        return self.witness.bounds(kind)


class Chaos:
    """Programs and a coordinator behind a network that fails."""

    def __init__(self, directory: Path, seed: int, durable: bool, stack: ExitStack) -> None:
        self.faults: Tally[str] = Tally()
        self._rng = SeededRandom(seed)
        self._clock = directory / "clock"
        self._clock.write_text("0")
        os.environ["COUNTLESS_CLOCK_FILE"] = str(self._clock)
        self.url = self._start(directory, seed, stack)
        self.server.reader.request("POST", "/api/v1/budgets", {"name": "quota", "limit": LIMIT})
        self.uwsgi = UwsgiProgram(directory / "uwsgi", self.url, UWSGI_COUNTERS, durable)
        programs = [Worker(directory / f"site-{i}", self.url, n, durable) for i, n in enumerate(COUNTERS)]
        self.workers: list[Worker | UwsgiProgram] = [*programs, self.uwsgi]
        for worker in self.workers:
            stack.callback(worker.kill)

    def _start(self, directory: Path, seed: int, stack: ExitStack) -> str:
        """The address for the programs."""
        self.server: Server = stack.enter_context(JumpingServer(directory / "coordinator", "--silent-after", "2s"))
        self.proxy = stack.enter_context(Proxy(self.server.url, seed))
        return self.proxy.url

    # Faults

    def run(self, seconds: float) -> None:
        end = monotonic() + seconds
        while monotonic() < end:
            fault = self._choices[self._rng.randbelow(len(self._choices))]
            self.faults[fault.__name__[1:].replace("_", " ")] += 1
            fault()
            sleep(self._some(1.0))
        self._heal()
        for clock in (self._clock, *(worker.clock for worker in self.workers)):
            clock.write_text("0")

    @property
    def _choices(self) -> list[Callable[[], None]]:
        faults = [self._kill_coordinator, self._stop_coordinator, self._kill_worker, self._stop_worker]
        faults += [self._kill_uwsgi_worker, self._stop_uwsgi_worker]
        return [*faults, self._kill_worker, self._jump, self._jump_worker, self._cut, self._fray]

    def _heal(self) -> None:
        self.proxy.set_profile(HEALTHY)

    def _some(self, most: float) -> float:
        return most * self._rng.randbelow(1_000) / 1_000

    def _some_worker(self) -> Worker | UwsgiProgram:
        return self.workers[self._rng.randbelow(len(self.workers))]

    def _some_server(self) -> Server:
        return self.server

    def _kill_coordinator(self) -> None:
        server = self._some_server()
        server.kill()
        sleep(self._some(2.0))
        server.start()

    def _stop_coordinator(self) -> None:
        self._stop(self._some_server().process, 4.0)

    def _stop_worker(self) -> None:
        self._stop(self._some_worker().process, 6.0)

    def _kill_uwsgi_worker(self) -> None:
        """The master forks another one."""
        os.kill(self._some_uwsgi_worker(), signal.SIGKILL)

    def _stop_uwsgi_worker(self) -> None:
        worker = self._some_uwsgi_worker()
        os.kill(worker, signal.SIGSTOP)
        sleep(self._some(6.0))
        os.kill(worker, signal.SIGCONT)

    def _some_uwsgi_worker(self) -> int:
        workers = until(lambda: self.uwsgi.web.workers, "a worker of uWSGI")
        worker: int = workers[self._rng.randbelow(len(workers))]
        return worker

    def _stop(self, process: "ForkedCommand | subprocess.Popen[str] | subprocess.Popen[bytes]", most: float) -> None:
        process.send_signal(signal.SIGSTOP)
        sleep(self._some(most))
        process.send_signal(signal.SIGCONT)

    def _kill_worker(self) -> None:
        worker = self._some_worker()
        worker.kill()
        sleep(self._some(4.0) if self._rng.randbelow(2) else 0.0)
        worker.start()

    def _cut(self) -> None:
        self.proxy.set_profile(FaultProfile(partitioned=True))
        sleep(self._some(4.0))
        self.proxy.set_profile(HEALTHY)

    def _fray(self) -> None:
        """Until another fault of the network."""
        self.proxy.set_profile(FaultProfile(drop=0.01, cut=0.01, max_delay_s=0.02))

    def _jump(self) -> None:
        days = (800, -800, 1, -1, 0, 0)[self._rng.randbelow(6)]
        self._clock.write_text(str(days * DAY_S))

    def _jump_worker(self) -> None:
        hours = (5, -5, 1, -1, 0, 0)[self._rng.randbelow(6)]
        self._some_worker().clock.write_text(str(hours * HOUR_S))

    # What is true at the end

    def connected(self) -> set[str]:
        return {site["site"] for site in self.server.sites()}

    def close_all(self) -> None:
        for worker in self.workers:
            worker.close()
        for worker in self.workers:
            if not worker.finish():
                raise AssertionError(f"{worker.directory.name} could not deliver its counts")

    def differences(self) -> list[str]:
        """Counts that are not what the programs did."""
        wrong = []
        for i in range(max(COUNTERS)):
            bounds = [worker.bounds(i) for worker in self.workers if i < worker.counters]
            happened = any(upper for _, upper in bounds)
            wrong += _compare(f"c{i}", self.server.inspect(f"c{i}")["known"] if happened else 0, bounds)
        hourly = [worker.bounds(worker.counters) for worker in self.workers]
        wrong += _compare("hourly", self.server.inspect("hourly")["known"], hourly)
        for i in range(LABELS):
            answer = self.server.answer(f'who{{name="l{i}"}}')
            bounds = [worker.bounds(worker.counters + 1 + i) for worker in self.workers]
            wrong += _compare(f"label l{i}", answer["lower"], bounds)
            wrong += _compare(f"label l{i}", answer["upper"], bounds)
        spent = [worker.bounds(worker.counters + 1 + LABELS) for worker in self.workers]
        usage = self.server.reader.request("GET", "/api/v1/budgets/quota")
        wrong += _compare("the budget", usage["used_lower"], spent)
        if sum(low for low, _ in spent) > LIMIT:
            wrong.append(f"the budget admitted {spent} of {LIMIT}")
        return wrong

    @property
    def events(self) -> int:
        return sum(w.bounds(kind)[0] for w in self.workers for kind in range(w.counters + KINDS_BESIDE_COUNTERS))


def _compare(name: str, counted: int, bounds: list[tuple[int, int]]) -> list[str]:
    lower, upper = sum(low for low, _ in bounds), sum(high for _, high in bounds)
    return [] if lower <= counted <= upper else [f"{name}: counted {counted}, happened {lower} to {upper}"]


def run(seed: int, seconds: float, durable: bool = True, kind: type[Chaos] = Chaos) -> list[str]:
    """What is wrong at the end; prints what happened. Programs that are not `durable` have no state_dir."""
    with tempfile.TemporaryDirectory(prefix="countless-chaos-") as directory, ExitStack() as stack:
        chaos = kind(Path(directory), seed, durable, stack)
        until(lambda: len(chaos.connected()) == len(chaos.workers), "every program has connected")
        chaos.run(seconds)
        chaos.close_all()
        wrong = chaos.differences()
        faults = ", ".join(f"{name} {number}" for name, number in sorted(chaos.faults.items()))
        print(f"seed {seed}, {seconds:.0f} s, {chaos.events:,} events: {faults}; {len(wrong)} counts are wrong")
        return wrong


def main(kind: type[Chaos]) -> None:
    parser = argparse.ArgumentParser(description="Kill, stop, cut and jump; then compare every count.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    differences = run(options.seed, 60 * options.minutes, kind=kind)
    print(*differences[:50], sep="\n")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main(Chaos)
