"""The four messages of the protocol (SPEC section 2), each one word in the paper's accounting.

Everything a site sends is cumulative and tagged with its round, and the coordinator merges by maximum: a message may
be lost, repeated or overtaken by another without a count being doubled or lost. Who sent it - the `SiteId` - is known
from the connection and is not repeated in every message.
"""

from typing import NamedTuple

from countless.core.triggers import Trigger

SiteName = str | int


class SiteId(NamedTuple):
    """One life of one site. A site that restarts without its state comes back with a higher incarnation."""

    site: SiteName
    incarnation: int = 0


class Report(NamedTuple):
    """Up: my pace told me to speak. `crossings` is how many points of the pace I have passed in this round."""

    counter: str
    round: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a message
    crossings: int


class Snapshot(NamedTuple):
    """Up: my exact count at the moment I adopted this round's pace (or joined, or left)."""

    counter: str
    round: int
    count: int  # type: ignore[assignment]


class StartRound(NamedTuple):
    """Down: adopt this pace at your present count, and tell me that count."""

    counter: str
    round: int
    trigger: Trigger


class SetTrigger(NamedTuple):
    """Down: continue with this pace from the count `since`, which is what I know of you; no reply is needed."""

    counter: str
    round: int
    trigger: Trigger
    from_count: int


UpMessage = Report | Snapshot
DownMessage = StartRound | SetTrigger
Message = UpMessage | DownMessage
