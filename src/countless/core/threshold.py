"""A threshold that a total may pass: first possibly, then certainly.

The true total is between the bounds of the answer. It is *possibly* over the threshold when the upper bound is, and
*certainly* when the lower bound is. The total never falls, so a verdict stays true, and each is given once.
"""

from dataclasses import dataclass
from typing import Literal

from countless.errors import InvalidParameter

Verdict = Literal["possibly", "certainly"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number, and whether a total with given bounds is over it.

    >>> threshold = Threshold(1000)
    >>> threshold.verdict(950, 990), threshold.verdict(980, 1020), threshold.verdict(1001, 1041)
    (None, 'possibly', 'certainly')
    """

    over: int

    def __post_init__(self) -> None:
        if isinstance(self.over, bool) or not isinstance(self.over, int) or self.over < 0:
            raise InvalidParameter("over", self.over, "an integer, at least 0")

    def verdict(self, lower: float, upper: float) -> Verdict | None:
        return "certainly" if lower > self.over else "possibly" if upper > self.over else None

    def new_verdicts(self, last: Verdict | None, lower: float, upper: float) -> tuple[Verdict, ...]:
        """The verdicts of these bounds that follow the `last` one given: "possibly" always comes before "certainly".

        >>> Threshold(1000).new_verdicts(None, 1001, 1041), Threshold(1000).new_verdicts("possibly", 980, 1020)
        (('possibly', 'certainly'), ())
        """
        steps: tuple[Verdict, ...] = ("possibly", "certainly")
        verdict = self.verdict(lower, upper)
        reached = 0 if verdict is None else steps.index(verdict) + 1
        return steps[0 if last is None else steps.index(last) + 1 : reached]
