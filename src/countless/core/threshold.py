"""A mark that a total may pass: first possibly, then certainly.

The truth lies between the bounds of the answer. It is *possibly* over the mark when the upper bound is, and *certainly*
when the lower bound is. The truth never falls, so what was said once stays true, and nothing is said twice.
"""

from dataclasses import dataclass
from typing import Literal

from countless.errors import InvalidParameter

Verdict = Literal["possibly", "certainly"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number, and what the bounds of an answer say about it.

    >>> threshold = Threshold(1000)
    >>> threshold.verdict(950, 990), threshold.verdict(980, 1020), threshold.verdict(1001, 1041)
    (None, 'possibly', 'certainly')
    """

    over: int

    def __post_init__(self) -> None:
        if isinstance(self.over, bool) or not isinstance(self.over, int) or self.over < 0:
            raise InvalidParameter("over", self.over, "an integer, at least 0")

    def verdict(self, lower: float, upper: float) -> Verdict | None:
        """What these bounds say."""
        return "certainly" if lower > self.over else "possibly" if upper > self.over else None

    def news(self, said: Verdict | None, lower: float, upper: float) -> tuple[Verdict, ...]:
        """What these bounds say beyond what was `said` before: "possibly" always comes before "certainly".

        >>> Threshold(1000).news(None, 1001, 1041), Threshold(1000).news("possibly", 980, 1020)
        (('possibly', 'certainly'), ())
        """
        steps: tuple[Verdict, ...] = ("possibly", "certainly")
        verdict = self.verdict(lower, upper)
        reached = 0 if verdict is None else steps.index(verdict) + 1
        return steps[0 if said is None else steps.index(said) + 1 : reached]
