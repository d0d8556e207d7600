"""Events that tell two neighbours apart, learnt from transcripts of both.

A transcript is looked at as a whole, and part by part: what its nested tuples and dataclasses contain, and the
differences of successive numbers. A whole transcript with many numbers hardly ever comes up twice, its parts do. An
event is a set of values of a part, a half-line, or a half-line of the sum of what all parts say.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import accumulate, islice, pairwise
from math import inf, log, sqrt
from typing import Any

MOST_PARTS = 32
Parts = dict[Hashable, Hashable] | None  # by the name of the part; None: the position is leaked, so no event has it


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    holds: Callable[[dict[Hashable, Hashable]], bool]

    def count(self, runs: Iterable[Parts]) -> int:
        return sum(parts is not None and self.holds(parts) for parts in runs)


def parts(transcript: Any) -> dict[Hashable, Hashable]:
    """The parts of a transcript, by name.

    >>> parts(((3, 5), "end"))
    {'the transcript': ((3, 5), 'end'), 'part 1': 3, 'part 2': 5, 'part 3': 'end', 'part 2 - part 1': 2}
    """
    leaves = list(islice(_leaves(transcript), MOST_PARTS))
    found: dict[Hashable, Hashable] = {"the transcript": transcript}
    found.update((f"part {number}", leaf) for number, leaf in enumerate(leaves, start=1))
    for number, (one, next_one) in enumerate(pairwise(leaves), start=1):
        if isinstance(one, int | float) and isinstance(next_one, int | float):
            found[f"part {number + 1} - part {number}"] = next_one - one
    return found


def _leaves(value: Any) -> Iterator[Any]:
    if is_dataclass(value):
        value = tuple(getattr(value, field.name) for field in fields(value))
    if isinstance(value, tuple | list):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def rough_limit(hits: int, misses: int, trials: int, delta: float) -> float:
    """About a lower limit of ln((p - delta)/q): to choose between events, not to reject a claim."""
    low = (hits - 3 * sqrt(hits)) / trials - delta
    return log(low / ((misses + 3 * sqrt(misses) + 5) / trials)) if low > 0 else -inf


def candidates(mine: Sequence[Parts], theirs: Sequence[Parts], delta: float) -> Iterator[Event]:
    """For each part the events that seem to tell `mine` from `theirs` best; the last ones look at all parts."""
    names = dict.fromkeys(name for runs in (mine, theirs) for seen in runs if seen is not None for name in seen)
    weighed: dict[bool, dict[Hashable, Callable[[Hashable], float]]] = {False: {}, True: {}}
    for name in names:
        ours, others = (Counter(seen.get(name) for seen in runs if seen is not None) for runs in (mine, theirs))
        likely = _likeliest(ours, others, len(mine), delta)
        yield Event(f"{name} is one of {len(likely)} values", _is_among(name, likely))
        sides = _best_cut(name, ours, others, len(mine), delta)
        if sides is not None:
            yield sides
        if name != "the transcript":
            weighed[" - " in str(name)][name] = _weights(ours, others, sides, name)
    for weights in weighed.values():
        if len(weights) > 1:
            yield from _by_all(weights, mine, theirs, delta)


def _is_among(name: Hashable, values: set[Hashable]) -> Callable[[dict[Hashable, Hashable]], bool]:
    return lambda seen: seen.get(name) in values


def _likeliest(ours: Counter[Hashable], others: Counter[Hashable], trials: int, delta: float) -> set[Hashable]:
    """Values in the order of their observed ratios, cut where the rough limit is largest."""
    ranked = sorted(ours, key=lambda value: (others[value] + 0.5) / ours[value])
    hits, misses = (list(accumulate(seen[value] for value in ranked)) for seen in (ours, others))
    limits = [rough_limit(*both, trials, delta) for both in zip(hits, misses, strict=True)]
    return set(ranked[: 1 + limits.index(max(limits))]) if limits else set()


def _best_cut(
    name: Hashable, ours: Counter[Hashable], others: Counter[Hashable], trials: int, delta: float
) -> Event | None:
    """The best half-line, if all values that are there are numbers."""
    values = {value for value in {*ours, *others} if value is not None}
    if len(values) < 2 or not all(isinstance(value, int | float) for value in values):
        return None
    best, event = -inf, None
    for up in (True, False):
        hits = misses = 0
        for value in sorted(values, reverse=up):  # type: ignore[type-var]
            hits, misses = hits + ours[value], misses + others[value]
            limit = rough_limit(hits, misses, trials, delta)
            if limit > best:
                best, event = limit, _half_line(name, value, up)
    return event


def _half_line(name: Hashable, cut: Any, up: bool) -> Event:
    def holds(seen: dict[Hashable, Hashable]) -> bool:
        value: Any = seen.get(name)
        return value is not None and (value >= cut if up else value <= cut)

    return Event(f"{name} is at {'least' if up else 'most'} {cut:.4g}", holds)


def _weights(
    ours: Counter[Hashable], others: Counter[Hashable], sides: Event | None, name: Hashable
) -> Callable[[Hashable], float]:
    """The logarithm of the ratio for a value: of its side of the cut if there is one, else of the value itself."""

    def kind(value: Hashable) -> Hashable:
        return value if sides is None or value is None else sides.holds({name: value})

    kinds = {kind(value) for value in {*ours, *others}}
    p, q = (Counter[Hashable]() for _ in range(2))
    for counted, seen in ((p, ours), (q, others)):
        for value, number in seen.items():
            counted[kind(value)] += number
    table = {each: log((p[each] + 1) / (q[each] + 1)) for each in kinds}
    return lambda value: table.get(kind(value), 0.0)


def _by_all(
    weights: dict[Hashable, Callable[[Hashable], float]], mine: Sequence[Parts], theirs: Sequence[Parts], delta: float
) -> Iterator[Event]:
    def score(seen: dict[Hashable, Hashable]) -> float:
        return sum(weigh(seen.get(name)) for name, weigh in weights.items())

    ours, others = (
        Counter[Hashable](round(score(seen), 9) for seen in runs if seen is not None) for runs in (mine, theirs)
    )
    best = _best_cut("score", ours, others, len(mine), delta)
    if best is not None:
        yield Event(f"{len(weights)} parts together", lambda seen: best.holds({"score": round(score(seen), 9)}))
