"""Transcripts of `partial_dp`, and their exact likelihood given the secret thresholds (paper, Lemma "privacy").

The data are the thresholds: `thresholds[site, block]` in 1..step is the place in the block at which the site
reports. A deterministic adversary's events follow from the answers, so the likelihood of a transcript is
that of the noise alone: one cell of the threshold noise for each ended phase, one density for each
completed node of the tree, one tail for the phase still open. `NoiseLaw` states these; changing one threshold
moves one crossing, so a likelihood *ratio* touches two phases and the nodes above them, and is computed in
O(log phases).
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1, inf, log, log1p

from countless.errors import InvalidParameter
from countless.privacy.binary_mechanism import nodes_of
from countless.privacy.guarantee import LeakMap
from countless.privacy.thresholds import PhasedShape

Block = tuple[int, int]
Thresholds = Mapping[Block, int]


def log_pmf(x: int, scale: Fraction) -> float:
    """ln P(X = x) for integer Laplace noise; without noise X is 0."""
    if scale == 0:
        return 0.0 if x == 0 else -inf
    rate = float(1 / scale)
    return log(-expm1(-rate)) - log1p(exp(-rate)) - abs(x) * rate


def log_at_most(x: int, scale: Fraction) -> float:
    """ln P(X <= x)."""
    if scale == 0:
        return 0.0 if x >= 0 else -inf
    rate = float(1 / scale)
    if x < 0:
        return x * rate - log1p(exp(-rate))
    return log1p(-exp(-(x + 1) * rate) / (1 + exp(-rate)))


@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """The noise of a phased counter as log-probabilities; negative controls change it."""

    shape: PhasedShape
    start_test: bool = True

    def ended(self, count: int) -> float:
        """A phase ended by its `count`-th crossing."""
        if count == 1 and not self.start_test:
            return log_at_most(1 - self.shape.threshold, self.shape.threshold_scale)
        return log_pmf(count - self.shape.threshold, self.shape.threshold_scale)

    def empty(self) -> float:
        """A phase ended at its start."""
        return log_at_most(-self.shape.threshold, self.shape.threshold_scale) if self.start_test else -inf

    def open(self, count: int) -> float:
        """A phase not ended after `count` crossings."""
        if count == 0 and not self.start_test:
            return 0.0
        return log_at_most(self.shape.threshold - count - 1, self.shape.threshold_scale)

    def node(self, noise: int) -> float:
        """A node of the tree with this noise."""
        return log_pmf(noise, self.shape.tree_scale)


@dataclass(frozen=True, slots=True)
class Transcript:
    """The adversary's view: the site of every unit event, at which event each phase ended, the released values.

    Events count from 1; an ending at event 0 happened before the first. The last phase of a round releases nothing.
    `released_at` has the event of each release, which the stated law does not need: a phase releases when it ends.
    """

    step: int
    events: tuple[int, ...]
    endings: tuple[int, ...]
    released: tuple[int, ...]
    released_at: tuple[int, ...] = ()

    def block_at(self, event: int) -> Block:
        """The block of its site that contains this event."""
        site = self.events[event - 1]
        seen = self.events[:event].count(site)
        return site, (seen - 1) // self.step + 1


def leaked_blocks(transcript: Transcript) -> frozenset[Block]:
    """The leak map of the paper: the block of the event at which each phase ended."""
    return frozenset(transcript.block_at(event) for event in transcript.endings if event > 0)


PHASE_ENDINGS = LeakMap("the block whose crossing ended each phase", leaked_blocks)


class LikelihoodRatios:
    """Likelihood ratios of a transcript between its thresholds and neighbouring ones."""

    def __init__(self, law: NoiseLaw, transcript: Transcript, thresholds: Thresholds) -> None:
        self.law, self.transcript, self.thresholds = law, transcript, dict(thresholds)
        self.places: dict[Block, list[int]] = {}  # the events of each block, in order
        seen: dict[int, int] = {}
        for event, site in enumerate(transcript.events, start=1):
            seen[site] = seen.get(site, 0) + 1
            self.places.setdefault((site, (seen[site] - 1) // transcript.step + 1), []).append(event)
        self._endings = list(transcript.endings)
        crossings = (self._crossing(block, None) for block in self.places)
        self._crossings = {event for event in crossings if event is not None}
        self.counts = [0] * (len(self._endings) + 1)
        for crossing in self._crossings:
            self.counts[self.phase_of(crossing)] += 1

    def _crossing(self, block: Block, threshold: int | None) -> int | None:
        """The event at which the block reports, or None if the block has not reached it."""
        place = self.thresholds[block] if threshold is None else threshold
        events = self.places[block]
        return events[place - 1] if place <= len(events) else None

    def phase_of(self, event: int) -> int:
        """The phase, from 0, of this event: the event that ends a phase belongs to it."""
        return bisect_left(self._endings, event)

    def log_likelihood(self) -> float:
        return self._log_endings() + sum(self.law.node(noise) for noise in self.node_noise())

    def possible(self) -> bool:
        """True if the endings have positive probability, for whatever released values."""
        return self._log_endings() > -inf

    def _log_endings(self) -> float:
        total, before = 0.0, 0
        for phase, event in enumerate(self._endings):
            if event == before:
                total += self.law.empty()
            elif event in self._crossings:
                total += self.law.ended(self.counts[phase])
            else:
                return -inf
            before = event
        if len(self._endings) < self.law.shape.phases:
            total += self.law.open(self.counts[-1])
        return total

    def node_noise(self) -> list[int]:
        """The noise of each completed node: the released sums minus the true counts."""
        sums = (0, *self.transcript.released)
        noise = []
        for node in range(1, len(sums)):
            start = node - (node & -node)
            noise.append(sums[node] - sums[start] - sum(self.counts[start:node]))
        return noise

    def log_ratio(self, block: Block, other: int, worst_nodes: bool = False) -> float:
        """ln P(transcript | thresholds) - ln P(transcript | the same with `other` at this block).

        Infinite if the neighbour cannot make this transcript. With `worst_nodes`, the largest value over all
        released sums with the same endings: a node whose count changes by d can contribute up to |d|/scale.
        """
        if not 1 <= other <= self.transcript.step:
            raise InvalidParameter("other", other, f"between 1 and the step {self.transcript.step}")
        old, new = self._crossing(block, None), self._crossing(block, other)
        if old == new:
            return 0.0
        if old is not None and old in self._endings:
            return inf
        changes: dict[int, int] = {}
        for event, change in ((old, -1), (new, +1)):
            if event is not None:
                phase = self.phase_of(event)
                changes[phase] = changes.get(phase, 0) + change
        changes = {phase: change for phase, change in changes.items() if change}
        return sum(self._threshold_ratio(*item) for item in changes.items()) + self._tree_ratio(changes, worst_nodes)

    def _threshold_ratio(self, phase: int, change: int) -> float:
        count = self.counts[phase]
        if phase < len(self._endings):
            return _difference(self.law.ended(count), self.law.ended(count + change))
        if phase >= self.law.shape.phases:
            return 0.0  # the round was over
        return _difference(self.law.open(count), self.law.open(count + change))

    def _tree_ratio(self, changes: dict[int, int], worst: bool) -> float:
        released = len(self.transcript.released)
        moved: dict[int, int] = {}
        for phase, change in changes.items():
            for node in nodes_of(phase + 1, released):
                moved[node] = moved.get(node, 0) + change
        total = 0.0
        noise = [] if worst else self.node_noise()
        for node, change in moved.items():
            # Beyond one unit from zero the ratio does not depend on the noise, so this window contains its maximum.
            candidates = range(-2, 3) if worst else (noise[node - 1],)
            ratios = [_difference(self.law.node(z), self.law.node(z - change)) for z in candidates]
            total += max(ratios) if change else 0.0
        return total


def _difference(mine: float, theirs: float) -> float:
    """mine - theirs for log-probabilities, 0 where both are impossible."""
    return 0.0 if mine == theirs else mine - theirs
