"""Random and evolutionary runs of production classes that come as close to the bounds of claims as they can.

A run is a setting and a list of operations, each three numbers. A `Group` plays it and returns, for each of its rows,
the largest ratio of what was found to the bound; of an equality, how often it was violated. The runs that came closest
to a bound are changed and played again. The same seed and number of runs find the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from countless.randomness import SeededRandom

Operation = tuple[int, int, int]  # of which kind, at which site, how many: what the numbers mean is the group's
Run = tuple[int, tuple[Operation, ...]]  # a setting, and operations
Ratios = dict[str, float]

BEST = 6  # runs that are kept for each row
MAX_OPERATIONS = 160
ABOVE = 1 + 1e-9  # a ratio above 1 by more than the rounding of doubles


@dataclass(frozen=True)
class Row:
    """One bound of a claim. `why`: where no search comes close, the traffic that would, and why it is not found."""

    name: str
    claim: str
    bound: str
    equality: bool = False
    why: str = ""


@dataclass(frozen=True)
class Group:
    rows: tuple[Row, ...]
    settings: int
    kinds: int
    play: Callable[[Run], Ratios]


@dataclass
class Found:
    """The worst of a row, and the run that has it."""

    row: Row
    ratio: float = 0.0
    run: Run = (0, ())
    number: int = 0  # of the run among those that the seed plays
    best: list[tuple[float, Run]] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        return self.ratio > (0 if self.row.equality else ABOVE)

    def add(self, ratio: float, run: Run, number: int) -> None:
        if ratio > self.ratio:
            self.ratio, self.run, self.number = ratio, run, number
        if len(self.best) < BEST or ratio >= self.best[-1][0]:
            # Of equal ones the newest comes first, so that the search moves on.
            self.best = sorted([(ratio, run), *self.best], key=lambda each: -each[0])[:BEST]


def search(group: Group, runs: int, seed: int, *, first: bool = False) -> list[Found]:
    """The worst ratios of these runs; with `first`, of the runs up to the first one above its bound."""
    found = {row.name: Found(row) for row in group.rows}
    rng = SeededRandom(seed)
    for number, run in enumerate(_runs(group, found, runs, rng)):
        for name, ratio in group.play(run).items():
            found[name].add(ratio, run, number)
        if first and any(each.broken for each in found.values()):
            break
    return [*found.values()]


def _runs(group: Group, found: dict[str, Found], runs: int, rng: SeededRandom) -> Iterator[Run]:
    rows = [row.name for row in group.rows if not row.equality] or [row.name for row in group.rows]
    for number in range(runs):
        known = found[rows[number % len(rows)]].best
        if number < 4 * BEST or not known or rng.randbelow(8) == 0:
            yield rng.randbelow(group.settings), tuple(_operations(group, 1 + rng.randbelow(60), rng))
        else:
            parent = known[rng.randbelow(len(known))][1]
            yield _changed(parent, known[rng.randbelow(len(known))][1], group, rng)


def _operations(group: Group, number: int, rng: SeededRandom) -> Iterator[Operation]:
    for _ in range(number):
        yield rng.randbelow(group.kinds), rng.randbelow(64), rng.randbelow(64)


def _changed(parent: Run, other: Run, group: Group, rng: SeededRandom) -> Run:
    setting, operations = parent[0], list(parent[1])
    for _ in range(1 + rng.randbelow(3)):
        at, end = sorted(rng.randbelow(len(operations) + 1) for _ in range(2))
        match rng.randbelow(8):
            case 0:
                operations[at:at] = _operations(group, 1 + rng.randbelow(4), rng)
            case 1:
                del operations[at : min(end, at + 1 + rng.randbelow(6))]
            case 2:
                operations[end:end] = operations[at:end][:20]
            case 3:
                operations[at:] = other[1][at:]
            case 4:
                setting = rng.randbelow(group.settings)
            case 5:
                operations += _operations(group, 1 + rng.randbelow(10), rng)
            case _:
                if at < len(operations):
                    each = list(operations[at])
                    each[rng.randbelow(3)] = rng.randbelow(64)
                    operations[at] = (each[0] % group.kinds, each[1], each[2])
    return setting, tuple(operations[:MAX_OPERATIONS])


def shortest(group: Group, run: Run, name: str, least: float = -inf) -> Run:
    """The run without the operations that its ratio does not need."""
    least = max(least, group.play(run)[name])
    operations = list(run[1])
    for at in reversed(range(len(operations))):
        fewer = operations[:at] + operations[at + 1 :]
        if group.play((run[0], tuple(fewer)))[name] >= least:
            operations = fewer
    return run[0], tuple(operations)
