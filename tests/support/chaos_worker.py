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
from countless.randomness import SeededRandom

LABELS = 50
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


def main(site: str, state_dir: str | None, witness_file: str, counters: int, seed: int) -> None:
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)  # for SIGTERM
    witness, rng = Witness(Path(witness_file)), SeededRandom(seed)
    witness.begin_process()
    client = countless.connect(state_dir=state_dir, site=site)
    budget = client.budget("quota")
    events = [client.counter(f"c{i}").inc for i in range(counters)]
    events.append(client.counter("hourly", per="hour").inc)
    who = client.counter("who", family=True)
    events += [who.labels(name=f"l{i}").inc for i in range(LABELS)]
    for number in range(sys.maxsize):
        if stopped:
            break
        kind = rng.randbelow(len(events) + 1)
        witness.begin(kind)
        if kind < len(events):
            events[kind]()
            witness.end(kind)
        else:
            witness.end(kind, bool(budget.take(1)))
        if number % FLUSH_EVERY == 0:
            client.flush(0.2)
    sys.exit(0 if client.close(90) else 1)


if __name__ == "__main__":
    site, state_dir, witness_file, counters, seed = sys.argv[1:]
    main(site, None if state_dir == "-" else state_dir, witness_file, int(counters), int(seed))
