"""The choices of a program for a family, or a distribution, and the steps that follow from them.

The width of an interval is what all sites together may hold back: `sites * (step - 1)`. A site has one step for each of
its labels, so this is at most a share of the total, whatever the labels are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from countless.core.family.distribution import Buckets, BucketSite
from countless.core.family.messages import Steps
from countless.core.family.site import LABEL_CAP, FamilySite
from countless.core.parameters import exact_fraction
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter

LABELS, VALUES = "labels", "values"  # a family; a distribution, whose labels are buckets of values
# Closed windows that are kept unless an operator says otherwise: enough for the last period, and for yesterday. A
# window of a family has all its labels, so these are fewer than of a counter.
DEFAULT_KEEP = {"minute": 120, "hour": 72, "day": 62, "month": 24}


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
    """The steps at a known total, and when higher ones are worth a message to every site.

    The width of a label is at most `label_share * epsilon` of the total, that of the total `total_share * epsilon`.

    >>> CertainSteps(0.01).steps(known=1_000_000, sites=100)
    Steps(label=76, total=201, exact=0)
    """

    def __init__(
        self, epsilon: float, label_share: Fraction = LABEL_SHARE, total_share: Fraction = TOTAL_SHARE
    ) -> None:
        require_epsilon(epsilon)
        exact = exact_fraction(epsilon)
        self.shares = label_share * exact, total_share * exact

    def steps(self, known: int, sites: int) -> Steps:
        label, total = (1 + int(share * min(known, MAX_KNOWN) / sites) for share in self.shares)
        return Steps(label, total)

    def raise_at(self, steps: Steps, sites: int) -> int:
        """The known total at which one of the steps has grown enough, and is at least one higher."""
        wanted = (max(step, -(-GROWTH * (step - 1) // 1)) for step in (steps.label, steps.total))
        return min(int(-(-each * sites / share // 1)) for each, share in zip(wanted, self.shares, strict=True))


@dataclass(frozen=True, slots=True)
class FamilyRule:
    """`accuracy` is that of the buckets of a distribution; 0 for a family. With `windows` the coordinator has a family
    for each window, which is counted from nothing: it has no floor.

    >>> FamilyRule("labels", 0.01).steps.steps(known=1_000_000, sites=100)
    Steps(label=76, total=201, exact=0)
    """

    kind: str
    epsilon: float
    accuracy: float = 0.0
    windows: WindowRule | None = None

    def __post_init__(self) -> None:
        if self.kind not in (LABELS, VALUES):
            raise InvalidParameter("kind", self.kind, f"{LABELS} or {VALUES}")
        require_epsilon(self.epsilon)
        if self.kind == VALUES:
            Buckets(self.accuracy)
        elif self.accuracy != 0:
            raise InvalidParameter("accuracy", self.accuracy, f"0 for {LABELS}")
        if self.windows is not None and self.windows.floor is not None:
            raise InvalidParameter("floor", self.windows.floor, message="floor can't be used for a family")

    def changed(self, given: Mapping[str, object], windows: WindowRule | None) -> "FamilyRule":
        """With these windows. Raises InvalidParameter if a setting of counters is given."""
        for name, value in given.items():
            raise InvalidParameter(name, value, message=f"{name} can't be used for a family, which has epsilon")
        return replace(self, windows=windows)

    @property
    def windows_kept(self) -> int:
        if self.windows is None:
            return 0
        return DEFAULT_KEEP[self.windows.per] if self.windows.keep is None else self.windows.keep

    @property
    def steps(self) -> CertainSteps:
        """A distribution has one step for all its buckets, with the whole of epsilon."""
        share = Fraction(1)
        return CertainSteps(self.epsilon, share, share) if self.kind == VALUES else CertainSteps(self.epsilon)

    @property
    def buckets(self) -> Buckets:
        if self.kind != VALUES:
            raise InvalidParameter("kind", self.kind, f"{VALUES}: only a distribution has quantiles")
        return Buckets(self.accuracy)

    def site(
        self, family: str, cap: int = LABEL_CAP, counts: Mapping[str, int] | None = None, total: int = 0
    ) -> FamilySite:
        kind = BucketSite if self.kind == VALUES else FamilySite
        return kind(family, cap=cap, counts=counts, total=total)

    def allows(self, label: str) -> bool:
        """True if a site can have this label, which is not empty."""
        return self.kind == LABELS or self.buckets.has(label)
