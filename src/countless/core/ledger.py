"""The ledger: what the coordinator knows of each site, merged by maximum (SPEC section 2).

Every number here is cumulative. A message that was repeated, delayed or overtaken can at worst bring no news.
"""

from collections.abc import Iterable, Iterator

from countless.core.messages import SiteId
from countless.errors import InvariantBroken, ProtocolError


class Entry:
    """One site, in one life."""

    __slots__ = (
        "asked",
        "assumed",
        "crossings",
        "present",
        "reported",
        "round_start",
        "silent",
        "site_id",
        "slot",
        "told",
        "trigger_changed",
    )

    def __init__(self, site_id: SiteId, count: int, slot: int) -> None:
        self.site_id = site_id
        self.reported = count  # the largest count heard
        self.round_start = count  # the count at which it entered this round
        self.crossings = 0  # points of its pace passed in this round
        self.slot = slot  # its place in this round's plan
        self.asked = False  # it owes a Snapshot
        self.assumed = False  # it was silent when the round opened: its base is only what was known of it
        self.told = True  # it has this round's pace, or a message that brings it is under way
        self.trigger_changed = False  # it was given another pace in the middle of this round
        self.silent = False  # it has not been heard of for too long
        self.present = True

    def __repr__(self) -> str:
        facts = [name for name in ("asked", "assumed", "trigger_changed", "silent") if getattr(self, name)]
        facts += [] if self.present else ["gone"]
        return (
            f"<Entry {self.site_id} known {self.reported}, base {self.round_start}, {self.crossings} crossings {facts}>"
        )


def certain(entries: Iterable[Entry], exact_below: float) -> list[bool]:
    """For each entry: is its count known exactly? Below `exact_below` its trigger makes it report its next event.

    A site that was not sent the trigger of this round was known exactly when the round started, and has not reported
    since.
    """
    return [
        (not entry.told or entry.reported < exact_below) and not (entry.asked or entry.assumed) for entry in entries
    ]


class _Entries(dict[SiteId, Entry]):
    """Looked up for every report: a dictionary that says who is missing."""

    def __missing__(self, site_id: SiteId) -> Entry:
        raise ProtocolError(f"site {site_id.site!r} (life {site_id.incarnation}) has not joined")


class Ledger:
    """All sites of one counter. Those that left stay until the next round has counted them in."""

    def __init__(self, departed: int = 0) -> None:
        self.entries = _Entries()  # others only look up, which is quicker here than through a method
        self.departed = departed  # the exact counts of the sites that are gone and settled
        self.present = 0  # how many sites take part

    def __len__(self) -> int:
        """How many places are taken in this round."""
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def __contains__(self, site_id: SiteId) -> bool:
        return site_id in self.entries

    def __getitem__(self, site_id: SiteId) -> Entry:
        return self.entries[site_id]

    @property
    def known_total(self) -> int:
        """The sum of all counts heard: never more than the truth."""
        return self.departed + sum([entry.reported for entry in self.entries.values()])

    def enter(self, site_id: SiteId, count: int, slot: int) -> Entry:
        """A new site, or a new life of one."""
        if site_id in self.entries:
            raise InvariantBroken(f"{site_id} is already in the ledger")
        entry = self.entries[site_id] = Entry(site_id, count, slot)
        self.present += 1
        return entry

    def forget(self, entry: Entry) -> None:
        """It could not be taken in."""
        del self.entries[entry.site_id]
        self.present -= 1

    def leave(self, entry: Entry) -> None:
        """Its count stays; its place is kept until the round ends."""
        entry.present = False
        self.present -= 1

    def settle(self) -> None:
        """Fold the sites that are gone into one number: their exact counts are kept, their entries are not."""
        for entry in [entry for entry in self.entries.values() if not entry.present]:
            self.departed += entry.reported
            del self.entries[entry.site_id]
