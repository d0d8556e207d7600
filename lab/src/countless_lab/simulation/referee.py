"""The referee compares every published estimate with the true total and keeps the worst errors."""

from countless.core.answer import within


class Referee:
    """Worst errors of one run, in units of alpha: 1 is the edge of the guarantee.

    While the estimate does not change and the total grows, the relative error is largest at the first or the last of
    these events. So it is enough to judge just before and just after each change of the estimate, and at the end.
    """

    __slots__ = ("_alpha", "over", "under", "violated_at")

    def __init__(self, alpha: float) -> None:
        self._alpha = float(alpha)
        self.over = self.under = 0.0  # worst error / alpha of estimates above and below the total
        self.violated_at: int | None = None  # the total at the first estimate outside 1 ± alpha

    @property
    def worst(self) -> float:
        return max(self.over, self.under)

    def judge(self, estimate: float, total: int) -> None:
        if not total:
            return
        error = (estimate - total) / (self._alpha * total)
        if error > self.over:
            self.over = error
        elif -error > self.under:
            self.under = -error
        else:
            return
        if self.violated_at is None and not within(estimate, self._alpha, total):
            self.violated_at = total
