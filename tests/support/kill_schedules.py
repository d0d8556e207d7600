"""Gateways that spend one budget and are killed at random instants, and the witness of what they admitted.

A supervisor process runs schedules. In each, gateways are forked; a timer of the operating system ends them at a random
microsecond, as `kill -9` does, and the supervisor forks the next generation. The last generation runs until nothing is
left. The coordinator may be killed as well. A gateway appends to the witness, a file, what it is about to do and what
was decided:

| line            | then so many units are charged at least and at most |
|-----------------|------------------------------------------------------|
| `id try w`      | 0, w: it may be killed before it learns the decision |
| `id no`         | 0, 0                                                 |
| `id taken w`    | w, w                                                 |
| `id held w`     | w, w                                                 |
| `id used u`     | u, w: it is about to settle                          |
| `id settled u`  | u, u                                                 |
"""

import logging
import os
import re
import signal
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Thread
from traceback import print_exc
from typing import NamedTuple

import countless
import countless.client.durable.state  # not once more in each gateway
from countless.core.budget.decision import Reason
from countless.core.budget.hold import Hold
from countless.errors import BudgetRefused, LimitExceeded
from countless.randomness import SeededRandom
from support.service import until

GATEWAYS = 3
_LINE = re.compile(r"^(\S+) (no|(?:try|taken|held|used|settled)(?= \d))(?: (\d))?$", re.MULTILINE)  # a digit: at most 5
WAIT_S = 90.0


@dataclass(frozen=True)
class Schedule:
    """What happens is drawn from the seed; when the processes get there is not."""

    seed: int
    durable: bool  # whether the gateways have a state_dir

    @property
    def name(self) -> str:
        return f"budget-{self.seed}"

    @property
    def limit(self) -> int:
        return 1 << (4 + SeededRandom(self.seed).randbelow(11))

    @property
    def slack(self) -> float:
        return (0.0, 0.01, 0.1)[self.seed % 3]

    @property
    def coordinator_is_killed(self) -> bool:
        return self.seed % 10 == 9

    def rng(self, *place: int) -> SeededRandom:
        return SeededRandom(self.seed).spawn(*place)

    def timer(self, gateway: int, generation: int) -> "Timer | None":
        """When this process is killed. None: it is the last generation."""
        rng = self.rng(gateway, generation)
        if generation >= 1 + rng.randbelow(3):
            return None
        if rng.randbelow(4) == 0:
            return Timer(from_start=True, microseconds=1 + rng.randbelow(100_000))
        return Timer(from_start=False, microseconds=1 + rng.randbelow(20_000))


class Timer(NamedTuple):
    """Ends a process: nothing handles the signal, so that the system does it, at any instruction."""

    from_start: bool  # or from the first unit that is admitted
    microseconds: int

    def start(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self.microseconds / 1e6)


class Witness:
    """Lines that are in the file, of which the operating system takes care, when `write` returns.

    A kill may cut a line off where a page of the file ends. So each begins a line of its own, and `charged` leaves out
    what is cut off: the process was killed before it could go on.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, line: str) -> None:
        os.write(self._file, b"\n" + line.encode())


def charged(path: Path) -> tuple[int, int]:
    """The units that are charged, at least and at most. Raises if an id was admitted twice."""
    least, most, admitted = dict[str, int](), dict[str, int](), set[str]()
    for key, what, units in _LINE.findall(path.read_text()):
        number = int(units or 0)
        if what in ("taken", "held"):
            if key in admitted:
                raise AssertionError(f"{key} was admitted twice")
            admitted.add(key)
        least[key] = 0 if what == "try" else number
        if what != "used":
            most[key] = number
    return sum(least.values()), sum(most.values())


# A gateway


class Gateway:
    """One process: two threads that spend, with holds that stay open for a while."""

    def __init__(self, schedule: Schedule, url: str, directory: Path, number: int, generation: int) -> None:
        self._schedule = schedule
        self._identity = (number, generation)
        self._state_dir = directory / f"state-{number}" if schedule.durable else None
        self._client = countless.connect(url, site=f"gateway-{number}", state_dir=self._state_dir)
        self._budget = self._client.budget(schedule.name)
        self._witness = Witness(directory / "witness")
        self._timer = schedule.timer(number, generation)
        self._refused: list[str] = []  # for another reason than that nothing is left

    def run(self) -> bool:
        """Spend until nothing is left, also of what earlier generations have left behind."""
        if self._timer is not None and not self._timer.from_start and self._budget.take(1, wait=WAIT_S):
            self._witness.write(f"{self._identity[0]}.{self._identity[1]}.first taken 1")
            self._timer.start()
        self._spend_all(0)
        if (directory := self._state_dir) is not None:
            until(lambda: len(list(directory.iterdir())) == 1, "what earlier generations left is handed in")
            self._client.flush(WAIT_S)  # on another connection: what came back is known here by now
            self._spend_all(2)
        delivered = self._client.close(WAIT_S)
        if self._refused or not delivered:
            print(f"gateway {self._identity}: refused {self._refused}, delivered {delivered}", file=sys.stderr)
        return delivered and not self._refused

    def _spend_all(self, first_thread: int) -> None:
        threads = [Thread(target=self._spend, args=(first_thread + number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _spend(self, thread: int) -> None:
        rng, holds = self._schedule.rng(*self._identity, thread), list[tuple[str, Hold]]()
        for step in count():
            key, weight = ".".join(map(str, (*self._identity, thread, step))), 1
            if rng.randbelow(5) == 0:
                weight += rng.randbelow(5)
            if holds and rng.randbelow(3) == 0:
                self._settle(*holds.pop(0), rng)
            self._witness.write(f"{key} try {weight}")
            if rng.randbelow(10) == 0:
                reason = self._reserve(key, weight, holds)
            else:
                reason = self._budget.take(weight, wait=WAIT_S).reason
            if reason is Reason.ALLOWED:
                if not holds or holds[-1][0] != key:
                    self._witness.write(f"{key} taken {weight}")
                continue
            self._witness.write(f"{key} no")
            if reason is not Reason.EXHAUSTED:
                self._refused.append(reason)
                return
            if weight == 1 and not holds:
                return
            while holds:
                self._settle(*holds.pop(0), rng)

    def _reserve(self, key: str, weight: int, holds: list[tuple[str, Hold]]) -> Reason:
        try:
            holds.append((key, self._budget.reserve(weight, wait=WAIT_S)))
        except LimitExceeded:
            return Reason.EXHAUSTED
        except BudgetRefused:
            return Reason.STARVED
        self._witness.write(f"{key} held {weight}")
        return Reason.ALLOWED

    def _settle(self, key: str, hold: Hold, rng: SeededRandom) -> None:
        used = rng.randbelow(hold.units + 1)
        self._witness.write(f"{key} used {used}")
        hold.settle(used)
        self._witness.write(f"{key} settled {used}")


# The supervisor


def supervise(schedule: Schedule, url: str, directory: Path) -> bool:
    """Run a schedule; whether every gateway of the last generation has spent until nothing was left."""
    running = {_fork(schedule, url, directory, number, 0): (number, 0) for number in range(GATEWAYS)}
    kills = 0
    while running:
        pid, status = os.wait()
        number, generation = running.pop(pid)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            kills += 1
            if kills == 2 and schedule.coordinator_is_killed:
                print("kill the coordinator", flush=True)
            running[_fork(schedule, url, directory, number, generation + 1)] = (number, generation + 1)
        elif status != 0:
            print(f"gateway {(number, generation)} of {schedule} ended with {status}", file=sys.stderr, flush=True)
            for other in running:
                os.kill(other, signal.SIGKILL)
            return False
    return True


def _fork(schedule: Schedule, url: str, directory: Path, number: int, generation: int) -> int:
    pid = os.fork()
    if pid == 0:
        timer = schedule.timer(number, generation)
        if timer is not None and timer.from_start:
            timer.start()
        complete = False
        try:
            complete = Gateway(schedule, url, directory, number, generation).run()
        except BaseException:
            print_exc()
            raise
        finally:
            sys.stderr.flush()
            os._exit(0 if complete else 1)
    return pid


def main() -> None:
    """Each line of the standard input is a schedule: its seed, whether it is durable, and an empty directory."""
    logging.getLogger("countless").setLevel(logging.ERROR)
    for line in sys.stdin:
        seed, durable, directory = line.split(maxsplit=2)
        schedule = Schedule(int(seed), durable == "True")
        complete = supervise(schedule, os.environ["COUNTLESS_URL"], Path(directory.strip()))
        print("complete" if complete else "failed", flush=True)


if __name__ == "__main__":
    main()
