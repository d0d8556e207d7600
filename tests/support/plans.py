"""Plans written by hand: no proof behind them, but rounds so short that a test meets every corner."""

from countless.planning.dithered.plan import DitheredPlan, Phase


def dithered_plan(
    slots: int,
    phases: int = 4,
    *,
    length: float = 3.0,
    dither: float = 1.0,
    alpha: float = 0.1,
    allowance: float = 10.0,
) -> DitheredPlan:
    """Equal phases; the answer of each is the middle of it."""
    made = []
    for number in range(phases):
        position = number * length
        middle = position + length / 2
        made.append(
            Phase(
                length=length,
                dither=dither,
                position=position,
                slack_early=0.0,
                slack_late=0.0,
                low=middle,
                high=middle,
                risk=0.0,
            )
        )
    return DitheredPlan(slots, alpha, 0.1, allowance, tuple(made), ())
