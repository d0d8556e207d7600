"""What the coordinator of a family knows of a site, what it saves, and what it shows to tests."""

from collections.abc import Mapping
from typing import NamedTuple

from countless.core.family.messages import Steps
from countless.core.messages import SiteId


class Member:
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


class PersistentState(NamedTuple):
    """All that must survive a restart. The owner saves it before it sends what an input returned."""

    round: int
    steps: Steps
    slots: int
    total: int
    counts: Mapping[str, int]
    members: Mapping[SiteId, SavedMember]
    departed: tuple[SiteId, ...]
    lost: int


class DebugState(NamedTuple):
    members: dict[SiteId, Steps]  # the highest steps that may be in force
    departed: tuple[SiteId, ...]
    awaiting: tuple[SiteId, ...]
    untold: tuple[SiteId, ...]
    unreachable: tuple[SiteId, ...]
    slots: int
    raise_at: int
