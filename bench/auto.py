"""`auto` against every single scheme in hindsight, from the first event to any total."""

from collections.abc import Callable, Iterator
from itertools import accumulate
from math import ceil

from countless.randomness import SeededDice
from countless.schemes.auto import AGAINST
from countless.tracker import Tracker

ALPHA = 0.01
Stream = Callable[[int, int, SeededDice], Iterator[tuple[int, int]]]


def uniform(sites: int, events: int, dice: SeededDice) -> Iterator[tuple[int, int]]:
    """Every site its turn, in batches that grow with the total so that a long stream takes no longer than a short one."""
    sent = 0
    while sent < events:
        batch = max(1, sent // (1000 * sites))
        for site in range(sites):
            yield site, batch
            sent += batch


def zipf(sites: int, events: int, dice: SeededDice) -> Iterator[tuple[int, int]]:
    """Site i is 1/(i+1) as busy as the first."""
    edges = list(accumulate(ceil(1e6 / (i + 1)) for i in range(sites)))
    sent = 0
    while sent < events:
        batch, mark = max(1, sent // (1000 * sites)), dice.below(edges[-1])
        low, high = 0, sites - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if edges[middle] > mark else (middle + 1, high)
        yield low, batch
        sent += batch


def single(sites: int, events: int, dice: SeededDice) -> Iterator[tuple[int, int]]:
    """One busy site among many idle ones."""
    sent = 0
    while sent < events:
        batch = max(1, sent // 20_000)
        yield sites // 2, batch
        sent += batch


STREAMS: dict[str, Stream] = {"uniform": uniform, "zipf": zipf, "single": single}


def costs(scheme: str, stream: Stream, sites: int, marks: list[int]) -> list[int]:
    """Messages when the total first reaches each mark."""
    tracker, seen, total = Tracker(sites, ALPHA, scheme=scheme, seed=3), [], 0
    for site, n in stream(sites, marks[-1], SeededDice(5)):
        tracker.site(site).add(n)
        total += n
        while len(seen) < len(marks) and total >= marks[len(seen)]:
            seen.append(tracker.messages.total)
    return seen


def main(fleets: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)) -> None:
    print("messages of auto / best of exact, deterministic, dithered, sampled in hindsight (bar 1.1), and / exact (bar 1)")
    singles = ["exact", "deterministic", *(scheme.name for scheme in AGAINST["adaptive"])]
    for sites in fleets:
        marks = sorted({min(10**8, ceil(sites * 10 ** (step / 4))) for step in range(21)})
        for name, stream in STREAMS.items():
            ours = costs("auto", stream, sites, marks)
            rivals = {scheme: costs(scheme, stream, sites, marks) for scheme in singles if scheme != "exact"}
            worst, where, best_name = 0.0, 0, ""
            for index, mark in enumerate(marks):
                best, scheme = min([(mark, "exact")] + [(cost[index], scheme) for scheme, cost in rivals.items()])
                if ours[index] / best > worst:
                    worst, where, best_name = ours[index] / best, mark, scheme
            beyond = max(cost / mark for cost, mark in zip(ours, marks, strict=True))
            print(
                f"{sites:>7,} sites, {name:8} worst {worst:.3f} of {best_name} at {where:,}; / exact {beyond:.3f}; "
                f"at {marks[-1]:,}: auto {ours[-1]:,}, " + ", ".join(f"{s} {c[-1]:,}" for s, c in rivals.items())
            )
