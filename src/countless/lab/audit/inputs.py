"""Adaptive inputs for audits, and one round run event by event.

The arena's adversaries try to make the count wrong. These inputs place events so that a transcript reveals as much as
possible about a block. An adaptive input yields the next site and receives whether the answer moved.
"""

from collections.abc import Callable, Generator
from typing import Protocol

from countless.core.random_source import RandomSource
from countless.lab.audit.transcripts import Block, Transcript

AdaptiveInput = Generator[int, bool, None]


class CrossingCounter(Protocol):
    """The interface of an audited mechanism: crossings in, endings and released values out."""

    @property
    def ended(self) -> int: ...

    @property
    def released(self) -> list[int]:
        """The values published so far, one for each ended phase but the last of the round."""

    @property
    def finished(self) -> bool: ...

    def crossing(self) -> bool:
        """Count one crossing; whether a phase ended."""


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
    counter: CrossingCounter, source: AdaptiveInput, step: int, rng: RandomSource, limit: int = 2_000_000
) -> tuple[Transcript, dict[Block, int]]:
    """One round with thresholds drawn lazily, until it is over or `limit` events have been fed."""
    thresholds: dict[Block, int] = {}
    seen: dict[int, int] = {}
    events: list[int] = []
    endings = [0] * counter.ended
    site = next(source)
    while not counter.finished and len(events) < limit:
        events.append(site)
        count = seen[site] = seen.get(site, 0) + 1
        block = (site, (count - 1) // step + 1)
        if block not in thresholds:
            thresholds[block] = 1 + rng.randbelow(step)
        moved = (count - 1) % step + 1 == thresholds[block] and counter.crossing()
        endings.extend([len(events)] * (counter.ended - len(endings)))
        site = source.send(moved)
    return Transcript(step, tuple(events), tuple(endings), tuple(counter.released)), thresholds


def replay(counter: CrossingCounter, events: tuple[int, ...], thresholds: dict[Block, int], step: int) -> Transcript:
    """The same events against given thresholds, whatever the answers are; stops when the round is over."""
    seen: dict[int, int] = {}
    endings = [0] * counter.ended
    used = 0
    for site in events:
        if counter.finished:
            break
        used += 1
        count = seen[site] = seen.get(site, 0) + 1
        if (count - 1) % step + 1 == thresholds[site, (count - 1) // step + 1]:
            counter.crossing()
            endings.extend([used] * (counter.ended - len(endings)))
    return Transcript(step, events[:used], tuple(endings), tuple(counter.released))
