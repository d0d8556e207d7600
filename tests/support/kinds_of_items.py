"""What a site sends about each kind that is counted, so that one suite can be run with all of them."""

from typing import Any, Protocol

from countless.core.family.rule import LABELS
from countless.core.messages import Report
from countless.server.sessions.closed_windows import Fold
from countless.wire.families import (
    FamilyJoin,
    FamilyLabels,
    FamilyLeave,
    FamilyLeaveAck,
    FamilyRejected,
    FamilyReport,
    FamilyReset,
    KnownLabels,
)
from countless.wire.frames import (
    CounterRejected,
    DownItem,
    IncarnationRetired,
    Join,
    KnownCounts,
    Leave,
    LeaveAck,
    Rejoin,
    UpItem,
)
from countless.wire.keys import COUNTER, FAMILY
from support.site_server import SiteServerHarness


class Items(Protocol):
    """`text` is the name in frames. Totals are those of one site; `fold` says what several sites, or windows, have
    together.
    """

    kind: str
    fold: Fold
    left: type
    rejected: type
    reset: type

    def join(self, text: str, known: int = 0) -> list[UpItem]:
        """A site that has reported this total before."""

    def report(self, text: str, total: int, round: int = 0) -> list[UpItem]: ...

    def leave(self, text: str, total: int) -> list[UpItem]: ...

    def told(self, received: list[DownItem]) -> dict[str, int]:
        """What a retired incarnation is told, by name."""

    def found(self, harness: SiteServerHarness, name: str) -> Any: ...


class CounterItems:
    kind = COUNTER
    fold: Fold = staticmethod(sum)
    left: type = LeaveAck
    rejected: type = CounterRejected
    reset: type = Rejoin

    def join(self, text: str, known: int = 0) -> list[UpItem]:
        return [Join(text, 0, known)]

    def report(self, text: str, total: int, round: int = 0) -> list[UpItem]:
        return [Report(text, round, total, total)]

    def leave(self, text: str, total: int) -> list[UpItem]:
        return [Leave(text, 0, total)]

    def told(self, received: list[DownItem]) -> dict[str, int]:
        return {
            name: n
            for item in received
            if isinstance(item, KnownCounts | IncarnationRetired)
            for name, n in item.known_counts
        }

    def found(self, harness: SiteServerHarness, name: str) -> Any:
        return harness.server.counters[name]


class FamilyItems:
    kind = FAMILY
    fold: Fold = staticmethod(sum)
    left: type = FamilyLeaveAck
    rejected: type = FamilyRejected
    reset: type = FamilyReset

    def join(self, text: str, known: int = 0) -> list[UpItem]:
        return [FamilyJoin(text, LABELS, 0.1, 0.0, 0, 1, 1, known, known), FamilyLabels(text, ("{p=a}",))]

    def report(self, text: str, total: int, round: int = 0) -> list[UpItem]:
        return [FamilyReport(text, round, total, (1, total))]

    def leave(self, text: str, total: int) -> list[UpItem]:
        return [FamilyLeave(text, 0, 1, 1, total, total)]

    def told(self, received: list[DownItem]) -> dict[str, int]:
        return {item.family: item.total for item in received if isinstance(item, KnownLabels)}

    def found(self, harness: SiteServerHarness, name: str) -> Any:
        return harness.server.families.by_name[name]


ALL_ITEMS: list[Items] = [CounterItems(), FamilyItems()]
