"""The state that the coordinator of a budget saves, and the one it shows."""

from enum import StrEnum
from typing import NamedTuple

from countless.core.messages import SiteId


class SavedSite(NamedTuple):
    """The part of one site that must survive a restart. `since` names its membership: the `seq` of its first Ask."""

    granted: int
    returned: int = 0
    spent: int = 0
    given_up: bool = False
    since: int = 0

    @property
    def limit(self) -> int:
        return self.granted - self.returned


class PersistentBudget(NamedTuple):
    """All that must survive a restart. The owner saves it before it sends what an input returned."""

    limit: int
    forgiven: int = 0
    gone: int = 0
    sites: tuple[tuple[SiteId, SavedSite], ...] = ()
    departed: tuple[SiteId, ...] = ()
    lost: int = 0
    resetting: bool = False


class BudgetState(StrEnum):
    OPEN = "open"
    EXHAUSTED = "exhausted"  # nothing is left; or a request was refused, and no more than the slack is left
    LOWERING = "lowering"  # sites may spend more than the limit: it was lowered, or one of them has overdrawn it
    RESETTING = "resetting"  # sites report what they have spent; then it is forgiven
    RESTORING = "restoring"  # the saved state is an older copy: nothing is granted until sites have told the rest
    CLOSED = "closed"  # for its owner: the period is over and its accounts are deleted


class Usage(NamedTuple):
    """The spending is between `lower` and `upper`. `leaked` units are counted as spent, and may not have been."""

    limit: int
    lower: int
    upper: int
    leaked: int
    state: BudgetState


class HolderRow(NamedTuple):
    """One site as the coordinator knows it, for people."""

    site_id: SiteId
    limit: int
    spent: int
    held: int
    lent: bool  # it may keep room that it does not use
    given_up: bool
    refused_from: int | None  # it refuses requests of so many units, and of more
