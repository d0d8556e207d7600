"""The four messages of a family, and what its coordinator knows of a site and saves.

Counts are cumulative and merged by maximum, so a message may be lost, repeated or overtaken without harm. `reported` in
`Totals` is the sum over all labels of what the site has reported: if the coordinator knows less, a report was lost. The
sender, a `SiteId`, is known from the connection.
"""

from collections.abc import Mapping
from typing import NamedTuple

from countless.core.messages import SiteId

OVERFLOW = ""  # the label of events whose own label is beyond a cap


class Steps(NamedTuple):
    """A site reports when a label has grown by `label`, or all labels together by `total`, since their last report.

    A site of a lattice also sends its exact total when it has grown by `exact`.
    """

    label: int = 1
    total: int = 1
    exact: int = 0

    def at_least(self, other: "Steps") -> "Steps":
        return Steps(max(self.label, other.label), max(self.total, other.total), other.exact)


class LabelReport(NamedTuple):
    """Up: counts of labels, and the count of all labels together."""

    family: str
    round: int
    counts: tuple[tuple[str, int], ...]
    total: int


class Totals(NamedTuple):
    """Up: the steps in force, the exact count of all labels together, and the sum of all counts in reports."""

    family: str
    round: int
    steps: Steps
    total: int
    reported: int


class SetSteps(NamedTuple):
    """Down: report at these steps from now on, and if `confirm`, reply with a `Totals`."""

    family: str
    round: int
    steps: Steps
    confirm: bool = False


class Resend(NamedTuple):
    """Down: a report was lost; report all labels again."""

    family: str


UpMessage = LabelReport | Totals
DownMessage = SetSteps | Resend
Outbox = list[tuple[SiteId, DownMessage]]


class FamilyEntry:
    """One incarnation of a site."""

    __slots__ = ("counts", "exact", "reported", "round", "steps", "total")

    def __init__(self, total: int = 0, counts: Mapping[str, int] | None = None) -> None:
        self.steps = Steps()  # the highest that may be in force
        self.total = total
        self.round, self.exact = 0, 0  # of a lattice only: the round of `total`, which is an estimate; the exact one
        self.counts = dict(counts or {})
        self.reported = sum(self.counts.values())


class SavedMember(NamedTuple):
    steps: Steps
    total: int
    counts: Mapping[str, int]


class PersistentFamily(NamedTuple):
    """All that must survive a restart. The owner saves it before it sends what an input returned."""

    round: int
    steps: Steps
    slots: int
    total: int
    counts: Mapping[str, int]
    members: Mapping[SiteId, SavedMember]
    departed: tuple[SiteId, ...]
    lost: int


class FamilyDebugState(NamedTuple):
    members: dict[SiteId, Steps]  # the highest steps that may be in force
    departed: tuple[SiteId, ...]
    awaiting: tuple[SiteId, ...]
    untold: tuple[SiteId, ...]
    unreachable: tuple[SiteId, ...]
    slots: int
    raise_at: int
