"""The holders of a budget: the sites that have asked for units, as their coordinator sees them, and their sums.

A state says what is known of the site's limit in the present round:

| state      | meaning                                                    | used units    | its `Ask` of this round |
|------------|------------------------------------------------------------|---------------|-------------------------|
| `CURRENT`  | it has returned its room, or had none                      | spent, held   | is answered             |
| `RECALLED` | it was sent `Recall`, and the coordinator waits for it     | its limit     | makes it `CURRENT`      |
| `MISSED`   | it did not answer in time, and is not waited for           | its limit     | makes it `CURRENT`      |
| `GIVEN_UP` | it ended without handing in its units; `leave` can do that | its limit     | is ignored              |

The holds of a `CURRENT` site are *certain* once it was sent `Exhausted`: from then on it reports what holds return. All
other holds may have ended since the last `Ask`, and are called *loose*.
"""

from enum import StrEnum

from countless.core.budget.messages import Ask
from countless.core.messages import SiteId


class HolderState(StrEnum):
    CURRENT = "current"
    RECALLED = "recalled"
    MISSED = "missed"
    GIVEN_UP = "given up"


CURRENT, RECALLED, MISSED, GIVEN_UP = HolderState


class Holder:
    """One site, as of the `Ask` with the highest `seq`."""

    __slots__ = ("held", "limit", "reachable", "refused_from", "seq", "spent", "state", "want")

    def __init__(self, limit: int = 0, state: HolderState = CURRENT, spent: int = 0) -> None:
        self.limit = limit  # the largest limit that the site may have; saved before it is sent
        self.state = state
        self.reachable = True
        self.spent = spent
        self.seq = self.held = self.want = 0
        self.refused_from: int | None = None  # the weight of the Exhausted that it was sent in this round

    def __repr__(self) -> str:
        return (
            f"<Holder {self.state}: {self.spent} spent, {self.held} held, limit {self.limit}, want {self.want}, "
            f"refused from {self.refused_from}, {'reachable' if self.reachable else 'unreachable'}>"
        )

    def note(self, ask: Ask) -> None:
        self.seq, self.spent, self.held, self.want = ask.seq, ask.spent, ask.held, ask.want
        self.reachable = True

    @property
    def room(self) -> int:
        return self.limit - self.spent - self.held

    @property
    def charged(self) -> int:
        return self.spent + self.held if self.state is CURRENT else self.limit

    @property
    def loose(self) -> int:
        return self.held if self.state is CURRENT and self.refused_from is None else 0

    @property
    def may_return(self) -> bool:
        """Whether a recall can return units, or must tell the site that requests may be asked for again."""
        return self.state is not CURRENT or self.room > 0 or self.held > 0 or self.refused_from is not None


class Holders(dict[SiteId, Holder]):
    """The holders by site id. A change of a holder happens inside `changing`, which keeps the sums."""

    __slots__ = ("charged", "limits", "loose", "present", "spent")

    def __init__(self) -> None:
        super().__init__()
        self.limits = self.charged = self.loose = self.spent = 0
        self.present = 0  # how many are not given up

    def changing(self, holder: Holder) -> "_Change":
        return _Change(self, holder)

    def add(self, site_id: SiteId, holder: Holder) -> Holder:
        self[site_id] = holder
        self.sum(holder, 1)
        return holder

    def remove(self, site_id: SiteId) -> None:
        holder = self.pop(site_id, None)
        if holder is not None:
            self.sum(holder, -1)

    def sum(self, holder: Holder, sign: int) -> None:
        self.limits += sign * holder.limit
        self.charged += sign * holder.charged
        self.loose += sign * holder.loose
        self.spent += sign * holder.spent
        self.present += sign * (holder.state is not GIVEN_UP)


class _Change:
    __slots__ = ("_holder", "_holders")

    def __init__(self, holders: Holders, holder: Holder) -> None:
        self._holders = holders
        self._holder = holder

    def __enter__(self) -> None:
        self._holders.sum(self._holder, -1)

    def __exit__(self, *error: object) -> None:
        self._holders.sum(self._holder, 1)
