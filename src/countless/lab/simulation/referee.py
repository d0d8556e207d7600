"""The referee: how far the published estimate has ever been from the truth. Imports nothing."""


class Referee:
    """Keeps the worst moment seen.

    While an estimate stands and the total grows, the relative error is largest at one end of the wait: so it is
    enough to look just before and just after each change of the estimate, and at the end.
    """

    __slots__ = ("_error", "alpha", "estimate", "truth")

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.estimate: float = 0  # at the worst moment
        self.truth = 0
        self._error = 0.0

    def see(self, estimate: float, truth: int) -> None:
        """One moment."""
        if truth and (error := abs(estimate - truth) / truth) > self._error:
            self._error, self.estimate, self.truth = error, estimate, truth

    @property
    def worst_error_over_alpha(self) -> float:
        """1 is the edge of what is promised. Rounded where a float could print 1.0000000000000002 at that edge."""
        return round(self._error / self.alpha, 12)

    @property
    def inside(self) -> bool:
        """Whether the estimate was within 1 ± alpha of the truth at every moment."""
        return self.worst_error_over_alpha <= 1
