"""The ledger: what the coordinator knows of each site.

Every count is cumulative and merged by maximum, so a message that is repeated, delayed or overtaken changes nothing.
"""

from countless.core.messages import SiteId
from countless.core.site_states import (
    AWAITING_SNAPSHOT,
    CURRENT,
    DEPARTED,
    MISSED_START,
    NOT_SENT,
    PRESENCE_TABLE,
    REACHABLE,
    ROUND_TABLE,
    START_ASSUMED,
    START_ASSUMED_TRIGGER_CHANGED,
    TRIGGER_CHANGED,
    UNREACHABLE,
    Presence,
    RoundState,
    SiteEvent,
)
from countless.errors import InvariantBroken, ProtocolError


class Entry:
    """One incarnation of one site."""

    __slots__ = (
        "asked_in",
        "crossings",
        "exact_below",
        "joined",
        "presence",
        "reported",
        "round_start",
        "round_state",
        "site_id",
        "slot",
    )

    def __init__(self, site_id: SiteId, count: int, slot: int, round_state: RoundState = CURRENT) -> None:
        self.site_id = site_id
        self.reported = count  # the largest count received
        self.round_start = count  # the count at which it adopted the trigger of this round
        self.crossings = 0  # points of its trigger passed in this round
        self.exact_below: float = 0  # if it was not sent its trigger: below this count, the one in force reports all
        self.joined = True  # False: loaded, and it has not named its round to this coordinator yet
        self.asked_in = 0  # while its snapshot is awaited: the first round that it was asked in
        self.slot = slot  # its index in the estimator of this round
        self.round_state = round_state
        self.presence: Presence = REACHABLE

    def __repr__(self) -> str:
        return (
            f"<Entry {self.site_id}: reported {self.reported}, round start {self.round_start}, "
            f"{self.crossings} crossings, {self.round_state}, {self.presence}>"
        )

    def apply(self, event: SiteEvent) -> None:
        try:
            self.round_state = ROUND_TABLE[self.round_state][event]
        except KeyError:
            raise InvariantBroken(f"event {event.name} in state {self.round_state.name} of {self.site_id}") from None

    @property
    def start_assumed(self) -> bool:
        """True if `round_start` is what was known of an unreachable site, until its snapshot corrects it."""
        return self.round_state in (MISSED_START, START_ASSUMED, START_ASSUMED_TRIGGER_CHANGED)

    @property
    def trigger_sent(self) -> bool:
        return self.round_state not in (NOT_SENT, MISSED_START)

    @property
    def trigger_changed(self) -> bool:
        """True if the trigger was changed during this round."""
        return self.round_state in (TRIGGER_CHANGED, START_ASSUMED_TRIGGER_CHANGED)

    def known_exactly(self, exact_below: float) -> bool:
        """True if `reported` is the site's count: a trigger in force reports every event of a count below this."""
        if self.round_state is CURRENT or self.round_state is TRIGGER_CHANGED:
            return self.reported < exact_below
        return self.round_state is NOT_SENT

    def is_plausible(self, count: int, crossings: int) -> bool:
        """True if a report is repeated, or has no more new crossings than new events."""
        return (
            crossings <= self.crossings
            or crossings - self.crossings <= count - self.reported
            # Before its snapshot the start is not known; a changed trigger may pass the same events again.
            or self.round_state is AWAITING_SNAPSHOT
            or self.trigger_changed
        )


class Ledger(dict[SiteId, Entry]):
    """All sites of one counter. The entry of a departed site stays until the next round starts.

    Looking up a site that has not joined is a ProtocolError.
    """

    def __init__(self, departed: int = 0) -> None:
        self.departed = departed  # the sum of the exact counts of departed sites without an entry
        self.left = 0  # and of those that still have one
        self.present = 0  # how many sites have not departed
        self.unreachable: dict[SiteId, None] = {}  # in the order in which they were marked

    def __missing__(self, site_id: SiteId) -> Entry:
        raise ProtocolError(f"site {site_id.site!r} (incarnation {site_id.incarnation}) has not joined")

    @property
    def known_total(self) -> int:
        """The sum of all counts received: never more than the true total."""
        return self.departed + sum(entry.reported for entry in self.values())

    def add(self, site_id: SiteId, count: int, round_state: RoundState = CURRENT) -> Entry:
        """A new site, or a new incarnation of one, in the next free slot."""
        if site_id in self:
            raise InvariantBroken(f"{site_id} is already in the ledger")
        entry = self[site_id] = Entry(site_id, count, len(self), round_state)
        self.present += 1
        return entry

    def discard(self, entry: Entry) -> None:
        """Undo `add`."""
        del self[entry.site_id]
        self.present -= 1

    def apply(self, entry: Entry, event: SiteEvent) -> None:
        """Change whether a site can be reached."""
        before, entry.presence = entry.presence, PRESENCE_TABLE[entry.presence][event]
        if entry.presence is before:
            return
        if entry.presence is UNREACHABLE:
            self.unreachable[entry.site_id] = None
        elif before is UNREACHABLE:
            del self.unreachable[entry.site_id]
        if entry.presence is DEPARTED:
            self.present -= 1
            self.left += entry.reported

    def fold_departed(self) -> None:
        """Replace the entries of departed sites by the sum of their counts."""
        for entry in [entry for entry in self.values() if entry.presence is DEPARTED]:
            del self[entry.site_id]
        self.departed, self.left = self.departed + self.left, 0
