"""The four messages of the protocol. Each is one word in the paper's accounting.

Counts are cumulative, every message carries its round, and the coordinator merges by maximum: a message may be lost,
repeated or overtaken, and no event is counted twice or lost. The sender, a `SiteId`, is known from the connection.
"""

from typing import NamedTuple

from countless.core.triggers import Trigger

SiteName = str | int


class SiteId(NamedTuple):
    """One incarnation of a site. A site that restarts without its state comes back with another incarnation.

    In the overflow series of a counter each series that is counted there is a site of its own: its name is the `part`.
    """

    site: SiteName
    incarnation: int = 0
    part: str = ""

    def __repr__(self) -> str:
        part = f", part={self.part!r}" if self.part else ""
        return f"SiteId(site={self.site!r}, incarnation={self.incarnation}{part})"


class Report(NamedTuple):
    """Up: the trigger fired. `count` is the last point passed, `crossings` how many points this round has passed."""

    counter: str
    round: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    crossings: int


class Snapshot(NamedTuple):
    """Up: the exact count of the site when it adopted this round's trigger, joined or left."""

    counter: str
    round: int
    count: int  # type: ignore[assignment]


class StartRound(NamedTuple):
    """Down: adopt this trigger at your present count, and reply with that count in a `Snapshot`."""

    counter: str
    round: int
    trigger: Trigger


class SetTrigger(NamedTuple):
    """Down: adopt this trigger from `from_count`, a count that the coordinator knows; no reply is needed."""

    counter: str
    round: int
    trigger: Trigger
    from_count: int


UpMessage = Report | Snapshot
DownMessage = StartRound | SetTrigger
Message = UpMessage | DownMessage
Outbox = list[tuple[SiteId, DownMessage]]
