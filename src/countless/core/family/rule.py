"""What a program chooses for a family, or a distribution, when it uses it."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from countless.core.family.distribution import Buckets, BucketSite
from countless.core.family.site import LABEL_CAP, FamilySite
from countless.core.family.steps import CertainSteps, require_epsilon
from countless.core.windows.rule import WindowRule
from countless.errors import InvalidParameter

LABELS, VALUES = "labels", "values"  # a family; a distribution, whose labels are buckets of values
# Closed windows that are kept unless an operator says otherwise: enough for the last period, and for yesterday. A
# window of a family has all its labels, so these are fewer than of a counter.
DEFAULT_KEEP = {"minute": 120, "hour": 72, "day": 62, "month": 24}


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

    @property
    def windows_kept(self) -> int:
        if self.windows is None:
            raise InvalidParameter("windows", None, "the rule of a family with windows")
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
        """Whether a site can have this label, which is not empty."""
        return self.kind == LABELS or self.buckets.has(label)
