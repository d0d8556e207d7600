"""Adaptive inputs for audits, and one round run event by event.

The arena's adversaries try to make the count wrong. These inputs place events so that a transcript reveals as much as
possible about a block. An adaptive input yields the next site and receives whether the answer moved.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator
from fractions import Fraction
from typing import Protocol

from countless.core.random_source import RandomSource
from countless_lab.audit.transcripts import Block, Transcript

AdaptiveInput = Generator[int, bool, None]


class Deviation(Exception):
    """Something that no correct counter publishes, whatever its noise is."""


class CrossingCounter(Protocol):
    """The interface of an audited mechanism: crossings in, endings and released values out."""

    @property
    def ended(self) -> int:
        """The phases that have ended; never decreases, also while the counter draws noise."""

    @property
    def released(self) -> list[int]:
        """The values published so far, one for each ended phase but the last of the round."""

    @property
    def value(self) -> int:
        """The number that is public now."""

    @property
    def finished(self) -> bool: ...

    def crossing(self) -> bool:
        """Count one crossing; whether a phase ended."""


class Watched:
    """A counter under audit; raises Deviation if what it publishes contradicts itself or what it has published."""

    __slots__ = ("_counter", "_phases", "ended", "released", "value")

    def __init__(self, counter: CrossingCounter, phases: int) -> None:
        self._counter, self._phases = counter, phases
        self.ended = 0
        self.released: list[int] = []
        self.value = 0
        self._look()

    @property
    def ended_now(self) -> int:
        """The phases that have ended, while the counter draws noise too."""
        return self._counter.ended

    @property
    def finished(self) -> bool:
        return self._counter.finished

    def crossing(self) -> bool:
        counter, before = self._counter, self.ended
        moved = counter.crossing()
        same = counter.ended == before and counter.value == self.value and counter.released == self.released
        if moved is False and same and not counter.finished:
            return False
        self._look()
        if moved is not (self.ended > before):
            raise Deviation(f"a crossing returned {moved} where {self.ended - before} phases ended")
        return moved

    def _look(self) -> None:
        counter, before = self._counter, self.released
        ended, released = counter.ended, list(counter.released)
        if not self.ended <= ended <= self._phases:
            raise Deviation(f"{ended} phases have ended, of {self._phases}, after {self.ended}")
        if released[: len(before)] != before:
            raise Deviation("a value that was released before has changed")
        if len(released) != min(ended, self._phases - 1):
            raise Deviation(f"{len(released)} values were released by the end of phase {ended}")
        self.value = released[-1] if released else 0
        if counter.value != self.value:
            raise Deviation(f"the public value is {counter.value}, and the last one released is {self.value}")
        if counter.finished is not (ended == self._phases):
            raise Deviation(f"finished is {counter.finished} after {ended} of {self._phases} phases")
        self.ended, self.released = ended, released


def round_robin(sites: int, _phases: int, _step: int, rng: RandomSource) -> AdaptiveInput:
    site = rng.randbelow(sites)
    while True:
        yield site
        site = (site + 1) % sites


def uniform(sites: int, _phases: int, _step: int, rng: RandomSource) -> AdaptiveInput:
    while True:
        yield rng.randbelow(sites)


def stop_after_jump(sites: int, _phases: int, _step: int, rng: RandomSource) -> AdaptiveInput:
    """One site until the answer moves, then another one: the leaked blocks stay open."""
    site = rng.randbelow(sites)
    while True:
        moved = yield site
        if moved:
            site = (site + 1) % sites


def rare_sites(sites: int, phases: int, step: int, _rng: RandomSource) -> AdaptiveInput:
    """A few sites get one event every few phases, so that one block runs through the whole round."""
    asleep = min(8, sites // 2)
    every = max(1, phases // step)
    jumps, site = 0, asleep
    while True:
        if jumps % every == 0:
            for sleeper in range(asleep):
                if (yield sleeper):
                    jumps += 1
        jumps += 1
        while not (yield site):
            site = asleep + (site + 1 - asleep) % (sites - asleep)


INPUTS: tuple[Callable[[int, int, int, RandomSource], AdaptiveInput], ...] = (
    rare_sites,
    round_robin,
    uniform,
    stop_after_jump,
)


def run_round(
    counter: CrossingCounter, source: AdaptiveInput, step: int, phases: int, rng: RandomSource, limit: int = 2_000_000
) -> tuple[Transcript, dict[Block, int]]:
    """One round with thresholds drawn lazily, until it is over or `limit` events have been fed."""
    thresholds: dict[Block, int] = {}
    seen: dict[int, int] = {}
    events: list[int] = []
    watched = Watched(counter, phases)
    endings = [0] * watched.ended
    site = next(source)
    while not watched.finished and len(events) < limit:
        events.append(site)
        count = seen[site] = seen.get(site, 0) + 1
        block = (site, (count - 1) // step + 1)
        if block not in thresholds:
            thresholds[block] = 1 + rng.randbelow(step)
        moved = (count - 1) % step + 1 == thresholds[block] and watched.crossing()
        endings.extend([len(events)] * (watched.ended - len(endings)))
        site = source.send(moved)
    return Transcript(step, tuple(events), tuple(endings), tuple(watched.released)), thresholds


class NeedsMore(Exception):
    """The noise tape is too short."""

    def __init__(self, scale: Fraction) -> None:
        self.scale = scale


class Deviates(Exception):
    """A counter published something other than the target."""


def replay(
    counter: CrossingCounter,
    events: tuple[int, ...],
    thresholds: dict[Block, int],
    step: int,
    phases: int,
    target: Transcript | None = None,
) -> Transcript:
    """The same events against given thresholds, whatever the answers are; stops when the round is over.

    Raises Deviates as soon as the transcript cannot become `target`.
    """
    seen: dict[int, int] = {}
    watched = Watched(counter, phases)
    endings = [0] * watched.ended
    released_at = [0] * len(watched.released)
    used = 0
    for site in events:
        if target is not None:
            _compare(target, used, endings, watched.released)
        if watched.finished:
            break
        used += 1
        count = seen[site] = seen.get(site, 0) + 1
        if (count - 1) % step + 1 == thresholds[site, (count - 1) // step + 1]:
            _cross(watched, target, used)
            endings.extend([used] * (watched.ended - len(endings)))
            released_at.extend([used] * (len(watched.released) - len(released_at)))
    found = Transcript(step, events[:used], tuple(endings), tuple(watched.released), tuple(released_at))
    if target is not None and found != target:
        raise Deviates
    return found


def _cross(watched: Watched, target: Transcript | None, used: int) -> None:
    try:
        watched.crossing()
    except NeedsMore:  # the phases that have ended show already; other values might still change
        if target is not None and watched.ended_now > bisect_right(target.endings, used):
            raise Deviates from None
        raise


def _compare(target: Transcript, used: int, endings: list[int], released: list[int]) -> None:
    """Raise unless target has published the same after `used` events."""
    ended, out = bisect_right(target.endings, used), bisect_right(target.released_at, used)
    if len(endings) != ended or len(released) != out or (out and released[-1] != target.released[out - 1]):
        raise Deviates
