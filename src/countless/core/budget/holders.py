"""The holders of a budget: the sites that have asked for units, as their coordinator sees them, and their sums.

A holder is *lent* while it may keep room that it does not use: from a `Quota` with `keep` until an `Ask` without it
that has seen the newest `Quota`. A holder that is not lent has no room, once all messages have arrived.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from countless.core.budget.messages import Ask
from countless.core.messages import SiteId


@dataclass(slots=True, eq=False)
class Holder:
    """One site in one membership, as of the `Ask` with the highest `seq`. Saved are the first four, and `given_up`."""

    since: int
    granted: int = 0
    returned: int = 0
    spent: int = 0
    seq: int = 0
    number: int = 0
    held: int = 0
    want: int = 0
    more: int = 0
    queued: bool = False
    lent: bool = False
    reachable: bool = True
    given_up: bool = False

    def note(self, ask: Ask) -> None:
        """Totals never fall, whatever an `Ask` says: the site may come from an older copy of its file."""
        self.seq, self.held, self.want, self.more = ask.seq, ask.held, ask.want, ask.more
        self.granted = max(self.granted, ask.granted)
        self.returned = max(self.returned, ask.returned)
        self.spent = max(self.spent, ask.spent)
        self.queued = ask.queued
        self.reachable = True

    @property
    def limit(self) -> int:
        return self.granted - self.returned


class Holders(dict[SiteId, Holder]):
    """The holders by site id. A change of a holder happens inside `changing`, which keeps the sums."""

    __slots__ = ("limits", "present", "rolling", "room", "spent")

    def __init__(self, *, rolling: bool) -> None:
        super().__init__()
        self.rolling = rolling
        self.limits = 0
        self.spent = 0  # 0 if rolling: what was handed over is gone
        self.room = 0  # what a recall may return, at most
        self.present = 0  # how many are not given up

    def unspent(self, holder: Holder) -> int:
        """The units that a holder may have left, for all that it has reported."""
        return holder.limit if self.rolling else holder.limit - holder.spent

    def may_return(self, holder: Holder) -> bool:
        return holder.reachable and not holder.given_up and self.unspent(holder) > 0

    @contextmanager
    def changing(self, holder: Holder) -> Iterator[None]:
        self._sum(holder, -1)
        yield
        self._sum(holder, 1)

    def add(self, site_id: SiteId, holder: Holder) -> Holder:
        self[site_id] = holder
        self._sum(holder, 1)
        return holder

    def remove(self, site_id: SiteId) -> None:
        holder = self.pop(site_id, None)
        if holder is not None:
            self._sum(holder, -1)

    def _sum(self, holder: Holder, sign: int) -> None:
        self.limits += sign * holder.limit
        if not self.rolling:
            self.spent += sign * holder.spent
        if holder.lent and holder.reachable:
            self.room += sign * self.unspent(holder)
        self.present += sign * (not holder.given_up)
