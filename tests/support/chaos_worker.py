"""A program that counts and spends until SIGTERM, and may be killed at any instruction. The witness says what it did.

python -P chaos_worker.py SITE STATE_DIR WITNESS COUNTERS SEED

Without a state_dir, `-`, a process that is killed may lose counts.

Every event is one of counter `c<i>`, of `hourly`, which has windows, of label `l<i>` of the family `who`, or a unit of
the budget `quota`. The witness has three numbers of each: how many are done; how many may be done, by processes that
were killed in the middle of one; and, at its end, which one the present process is at.
"""

import mmap
import signal
import sys
from pathlib import Path
from typing import Self

import countless
from countless.client.client import Client
from countless.randomness import SeededRandom

LABELS = 50
KINDS_BESIDE_COUNTERS = 1 + LABELS + 1  # hourly, the labels, the budget
FLUSH_EVERY = 5_000


class Witness:
    """Numbers in a file that is mapped to memory, so they survive the process."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._numbers = memoryview(self._map).cast("Q")
        self._kinds = len(self._numbers) // 2

    @classmethod
    def create(cls, path: Path, kinds: int) -> Self:
        path.write_bytes(bytes(8 * (2 * kinds + 1)))
        return cls(path)

    def begin_process(self) -> None:
        if current := self._numbers[-1]:
            self._numbers[self._kinds + current - 1] += 1
            self._numbers[-1] = 0

    def begin(self, kind: int) -> None:
        self._numbers[-1] = kind + 1

    def end(self, kind: int, done: bool = True) -> None:
        self._numbers[kind] += done
        self._numbers[-1] = 0

    def bounds(self, kind: int) -> tuple[int, int]:
        """How many events of this kind happened, at least and at most."""
        done, unsure = self._numbers[kind], self._numbers[self._kinds + kind]
        return done, done + unsure + (self._numbers[-1] == kind + 1)


class Program:
    """What counts and spends at random, and what the witness calls its parts."""

    def __init__(self, client: Client, counters: int, seed: int) -> None:
        self._rng = SeededRandom(seed)
        self._budget = client.budget("quota")
        self._events = [client.counter(f"c{i}").inc for i in range(counters)]
        self._events.append(client.counter("hourly", per="hour").inc)
        who = client.counter("who", family=True)
        self._events += [who.labels(name=f"l{i}").inc for i in range(LABELS)]

    def do_something(self, witness: Witness) -> None:
        kind = self._rng.randbelow(len(self._events) + 1)
        if kind < len(self._events):
            self._count(witness, kind)
        else:
            witness.begin(kind)
            witness.end(kind, bool(self._budget.take(1)))

    def count_something(self, witness: Witness) -> None:
        self._count(witness, self._rng.randbelow(len(self._events)))

    def _count(self, witness: Witness, kind: int) -> None:
        witness.begin(kind)
        self._events[kind]()
        witness.end(kind)


def main(site: str, state_dir: str | None, witness_file: str, counters: int, seed: int) -> None:
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)  # for SIGTERM
    witness = Witness(Path(witness_file))
    witness.begin_process()
    client = countless.connect(state_dir=state_dir, site=site)
    program = Program(client, counters, seed)
    for number in range(sys.maxsize):
        if stopped:
            break
        program.do_something(witness)
        if number % FLUSH_EVERY == 0:
            client.flush(0.2)
    sys.exit(0 if client.close(90) else 1)


if __name__ == "__main__":
    site, state_dir, witness_file, counters, seed = sys.argv[1:]
    main(site, None if state_dir == "-" else state_dir, witness_file, int(counters), int(seed))
