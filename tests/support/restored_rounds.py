"""A scheme that notes which of its rounds have become active: only these can spend a share of delta."""

from collections.abc import Sequence

from countless.core.estimator import Estimator, RoundContext
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.schemes.lattice import LatticeEstimator
from countless.schemes.offsets import OffsetTable
from support.schemes import Plain


class _Noted(LatticeEstimator):
    def __init__(self, offsets: OffsetTable, reports: int, round: int, active: list[int]) -> None:
        super().__init__(offsets, reports)
        self._round, self._active = round, active

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        self._active.append(self._round)
        super().start(entries, departed)


class Recording(Plain):
    def __init__(self) -> None:
        super().__init__(start=5, step=4, reports=4)
        self.active: list[int] = []

    def _estimator(self, context: RoundContext, rng: RandomSource) -> Estimator:
        return _Noted(OffsetTable([self.step] * (context.slots + 10), rng), self.reports, context.round, self.active)
