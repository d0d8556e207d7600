"""Which steps a family takes at a known total, and when higher ones are worth a message to every site.

The width of an interval is what all sites together may hold back: `sites * (step - 1)`. A site has one step for each of
its labels, so this is at most a share of the total, whatever the labels are.
"""

from fractions import Fraction

from countless.core.family.messages import Steps
from countless.errors import InvalidParameter

# Shares of epsilon: the width of a label, and of the total. The total is published as the middle of its interval, so
# it is within epsilon of the truth.
LABEL_SHARE = Fraction(3, 4)
TOTAL_SHARE = Fraction(2)
GROWTH = Fraction(5, 4)  # of a step, for which sites are told
MAX_KNOWN = 1 << 250  # whatever sites claim to have counted, the steps fit in a message to the others


def require_epsilon(epsilon: object) -> None:
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 1e-9 <= epsilon < 0.5:
        raise InvalidParameter("epsilon", epsilon, "a number from 1e-9 to 1/2, 1/2 excluded")


class CertainSteps:
    """The width of a label is at most `label_share * epsilon` of the total, that of the total `total_share * epsilon`.

    >>> CertainSteps(0.01).steps(known=1_000_000, sites=100)
    Steps(label=76, total=201, exact=0)
    """

    def __init__(
        self, epsilon: float, label_share: Fraction = LABEL_SHARE, total_share: Fraction = TOTAL_SHARE
    ) -> None:
        require_epsilon(epsilon)
        exact = Fraction(repr(epsilon))
        self.shares = label_share * exact, total_share * exact

    def steps(self, known: int, sites: int) -> Steps:
        label, total = (1 + int(share * min(known, MAX_KNOWN) / sites) for share in self.shares)
        return Steps(label, total)

    def raise_at(self, steps: Steps, sites: int) -> int:
        """The known total at which one of the steps has grown enough, and is at least one higher."""
        wanted = (max(step, -(-GROWTH * (step - 1) // 1)) for step in (steps.label, steps.total))
        return min(int(-(-each * sites / share // 1)) for each, share in zip(wanted, self.shares, strict=True))
