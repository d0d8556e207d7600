"""What a coordinator keeps across restarts, and the interfaces of the stores that keep it.

The core's rule is *save before send* (design/decisions/save-before-send.md): a message that the core returned may leave
the process only when the state behind it is saved. One input changes the count of one site, so a save is a list of
changes, and many inputs share one save.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import PersistentState as BudgetState
from countless.core.budget.state import SavedSite
from countless.core.coordinator import PersistentState
from countless.core.family.messages import Steps
from countless.core.family.rule import FamilyRule
from countless.core.family.state import PersistentState as FamilyState
from countless.core.family.state import SavedMember
from countless.core.messages import SiteId
from countless.core.windows.rule import WindowRule
from countless.errors import CountlessError
from countless.wire.keys import ALL, COUNTER, FAMILY, Key, key_of

SiteCounts = dict[str, dict[SiteId, int | None]]  # by counter and site id; None: the site is not a member any more


class StoreError(CountlessError):
    """The state cannot be read or written as it is. A save that raises this may be tried again."""


@dataclass(frozen=True, slots=True)
class Config:
    """What an operator chose for a counter."""

    alpha: float = 0.01
    delta: float = 0.05
    scheme: str = "auto"
    adversary: str = "adaptive"
    label_cap: int = 2000
    windows: WindowRule | None = None


class CounterFields(NamedTuple):
    """What is saved of a counter beside its config and the counts of its sites.

    A counter with windows has no sites. Its `round` is the first period that is kept, `departed` the total of earlier
    ones; its published estimate is at least `published`.
    """

    round: int
    published: float
    departed: int


class WindowKey(NamedTuple):
    """A window of a counter. While it is open, it also has everything that a counter has, under its wire name."""

    counter: str
    period: int


class WindowFields(NamedTuple):
    floor: int
    total: int | None  # None: it is open
    lost: int = 0  # sites that ended without saying how much they had counted, in this window ...
    lost_until: int = 0  # ... and the later ones up to this


class BudgetFields(NamedTuple):
    """What is saved of a budget beside its periods."""

    rule: BudgetRule
    first_period: int = 0  # earlier ones are closed for good


class PeriodFields(NamedTuple):
    """What is saved of a period of a budget beside its sites. The limit is in the rule."""

    forgiven: int
    gone: int
    lost: int
    round: int
    resetting: bool


class SavedPeriod(NamedTuple):
    fields: PeriodFields
    sites: dict[SiteId, SavedSite]

    def state(self, limit: int) -> BudgetState:
        forgiven, gone, lost, number, resetting = self.fields
        return BudgetState(limit, forgiven, gone, number, tuple(self.sites.items()), (), lost, resetting)


class SavedBudget(NamedTuple):
    fields: BudgetFields
    periods: dict[int, SavedPeriod]


class FamilyFields(NamedTuple):
    """What is saved of a family beside its labels and its sites.

    A family with windows has no sites. Its labels and its `total` are those of the windows that are not kept any more,
    its `round` is the first period that is. Each window that is kept is a family of its own, under its wire name.
    """

    rule: FamilyRule
    round: int
    steps: Steps
    slots: int
    total: int
    lost: int  # sites that ended without saying how much they had counted ...
    lost_until: int = 0  # ... of a window: in this one and the later ones up to this


class MemberFields(NamedTuple):
    """What is saved of a site of a family beside its counts: the highest steps that may be in force, and its total."""

    steps: Steps
    total: int


class SavedFamily(NamedTuple):
    fields: FamilyFields
    labels: dict[str, int]  # what is known of each label
    members: dict[SiteId, SavedMember]

    @property
    def state(self) -> FamilyState:
        _, number, steps, slots, total, lost, _ = self.fields
        return FamilyState(number, steps, slots, total, self.labels, self.members, (), lost)


@dataclass(slots=True)
class FamilyChanges:
    """Of one family. A member that is None has departed, and its counts are not kept any more."""

    fields: FamilyFields
    labels: dict[str, int] = field(default_factory=dict)
    members: dict[SiteId, MemberFields | None] = field(default_factory=dict)
    counts: dict[SiteId, dict[str, int]] = field(default_factory=dict)


class What(StrEnum):
    """What a tombstone says."""

    COUNT = "count"  # the final count: of a counter or window, of a label of a family, or of all its labels together
    LEFT = "left"  # the site has left the family, so that everything it has counted is known
    WATERMARK = "watermark"  # the first window that the site has not left; the key is that of all windows together


class Tombstone(NamedTuple):
    """What is kept of an incarnation after it has left, or was retired, by the key that its client uses."""

    site_id: SiteId
    key: Key
    what: What
    label: str | None  # of a family; None: all labels together, or a counter
    value: int


@dataclass(slots=True)
class Changes:
    """What one save writes, completely or not at all. Deletions come first: a counter may be deleted and recreated.
    The same is true of budgets, and of windows that are closed and opened again. Tombstones outlive a closed window.
    """

    counters: dict[str, CounterFields] = field(default_factory=dict)
    counts: SiteCounts = field(default_factory=dict)
    configs: dict[str, Config] = field(default_factory=dict)  # of counters that are new or reconfigured
    tombstones: list[Tombstone] = field(default_factory=list)  # a later one replaces an earlier one
    deleted: list[str] = field(default_factory=list)
    prune_before: int | None = None  # drop the tombstones of incarnations that have none of this second, or later
    budgets: dict[str, BudgetFields] = field(default_factory=dict)  # that are new, or have another rule
    periods: dict[BudgetId, PeriodFields] = field(default_factory=dict)
    budget_sites: dict[BudgetId, dict[SiteId, SavedSite | None]] = field(default_factory=dict)  # None: no holder
    closed_periods: list[BudgetId] = field(default_factory=list)
    deleted_budgets: list[str] = field(default_factory=list)
    windows: dict[WindowKey, WindowFields | None] = field(default_factory=dict)  # None: it is not kept any more
    closed: list[str] = field(default_factory=list)  # wire names of windows that are not open any more
    families: dict[str, FamilyChanges] = field(default_factory=dict)
    deleted_families: list[str] = field(default_factory=list)  # with their tombstones: see `tombstone_text`
    dropped_families: list[str] = field(default_factory=list)  # windows that are not kept any more: without tombstones

    def __bool__(self) -> bool:
        tombstones = self.tombstones or self.prune_before is not None
        rare = self.configs or tombstones or self.deleted or self.windows
        budgets = self.budgets or self.periods or self.budget_sites or self.closed_periods or self.deleted_budgets
        families = self.families or self.deleted_families or self.dropped_families
        return bool(self.counters or self.counts or rare or budgets or families)


class StateStore(Protocol):
    """The state of all counters of one site server. Methods block, and may be called from any thread."""

    def load(self) -> dict[str, tuple[Config, PersistentState]]: ...

    def load_windows(self) -> Iterator[tuple[WindowKey, WindowFields]]:
        """In the order of their keys. It reads one after another, because there may be a million."""

    def load_budgets(self) -> dict[str, SavedBudget]: ...

    def load_families(self) -> dict[str, SavedFamily]: ...

    def save(self, changes: Changes) -> None:
        """When this returns, messages that depend on the changes may be sent. Raises StoreError: nothing was saved."""

    def tombstones(self, site_id: SiteId) -> list[Tombstone]:
        """Of an incarnation, in the order of their keys."""

    def tombstone_horizon(self) -> int:
        """Tombstones of incarnations that began before this second may have been dropped; 0: none was. It never falls.

        All tombstones of an incarnation are dropped together. `prune_before` drops none of an incarnation that began
        later, unless it began before the horizon: one wrong clock must not move the horizon far ahead of all others.
        """


# How stores write tombstones and parts of sites as texts. No name contains a line feed.


def tombstone_text(key: Key, what: What = What.COUNT, label: str | None = None) -> str:
    if key.kind == COUNTER:
        return str(key)
    return family_text(key) + ("\n\n" if what is What.LEFT else "" if label is None else f"\n{label}")


def family_text(key: Key) -> str:
    return f"\n{key}"


def labels_prefix(key: Key) -> str:
    """What the texts of all labels of a family begin with."""
    return f"{family_text(key)}\n"


def tombstone_of_text(site_id: SiteId, text: str, value: int) -> Tombstone:
    family, label = "", None
    if text.startswith("\n"):
        family, separator, rest = text[1:].partition("\n")
        label = rest if separator else None
    key = key_of(FAMILY, family) if family else key_of(COUNTER, text)
    if label == "\n":
        return Tombstone(site_id, key, What.LEFT, None, value)
    return Tombstone(site_id, key, What.WATERMARK if key.period == ALL else What.COUNT, label, value)


def site_text(site_id: SiteId) -> str:
    return f"{site_id.site}\n{site_id.part}" if site_id.part else str(site_id.site)


def site_of_text(text: str, incarnation: int) -> SiteId:
    site, _, part = text.partition("\n")
    return SiteId(site, incarnation, part)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as it is stored: the digest, never the token itself. Times are seconds since 1970."""

    digest: bytes
    scope: str
    site: str | None
    label: str
    created: int
    expires: int | None = None  # None: never
    last_used: int | None = None  # within a minute or so; None: never

    def valid_at(self, second: float) -> bool:
        return self.expires is None or second < self.expires

    @property
    def fingerprint(self) -> str:
        """The first digits of the digest, as lists and the audit log show them."""
        return self.digest.hex()[:12]

    def is_named(self, which: str) -> bool:
        return which in (self.label, self.fingerprint)


class TokenStore(Protocol):
    """Bearer tokens. Methods may be called from any thread."""

    def add_token(self, token: Token) -> None: ...

    def token(self, digest: bytes) -> Token | None: ...

    def tokens(self) -> list[Token]:
        """In the order in which they were created."""

    def revoke(self, which: str) -> int:
        """Remove the tokens with this label or fingerprint; how many there were."""

    def expire(self, digest: bytes, second: int) -> None:
        """Let a token expire then, or when it would have anyway, if that is sooner."""

    def note_uses(self, uses: Mapping[bytes, int]) -> None:
        """The last use of tokens, by their digests."""


def parse_total(text: str) -> float:
    """A published total, stored as text: an integer of any size, or a float."""
    return int(text) if text.isdecimal() else float(text)
