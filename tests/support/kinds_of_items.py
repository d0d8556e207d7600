"""What a site sends about each kind, so that one suite can be run with all of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from countless.core.budget.messages import Ask, BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.family.rule import LABELS
from countless.core.messages import Report
from countless.server.sessions.closed_windows import Fold
from countless.server.site_server import SiteServer
from countless.wire.budgets import BudgetLeave, BudgetLeaveAck, BudgetRejected
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
from countless.wire.keys import BUDGET, COUNTER, FAMILY, Key, key_of, parse_calendar
from support.site_server import SiteServerHarness


class Items(ABC):
    """`text` is the name in frames, of `requests` or of a window of it. Totals are those of one site; `fold` says what
    several sites, or windows, have together.
    """

    kind: str
    fold: Fold = staticmethod(sum)
    left: type
    rejected: type
    reset: type
    limit: Mapping[str, int] = {"max_counters": 1}  # with which there is room for one name
    uninvited: Sequence[type] = ()  # what answers a report of a site that has not joined
    opens_again = True  # a window that is closed

    def create(self, server: SiteServer, text: str) -> None:  # noqa: B027
        """By an operator, if it is not created by its first use."""

    def delete(self, server: SiteServer, name: str) -> None:
        server.delete(name)

    @abstractmethod
    def join(self, text: str, known: int = 0) -> list[UpItem]:
        """A site that has reported this total before."""

    @abstractmethod
    def report(self, text: str, total: int, round: int = 0) -> list[UpItem]: ...

    @abstractmethod
    def leave(self, text: str, total: int) -> list[UpItem]: ...

    def told(self, received: list[DownItem]) -> dict[str, int]:
        """What a retired incarnation is told, by name."""
        return {
            name: n
            for item in received
            if isinstance(item, KnownCounts | IncarnationRetired)
            for name, n in item.known_counts
        }

    def knows(self, text: str, total: int) -> dict[str, int]:
        """What it should be told."""
        return {text: total}

    @abstractmethod
    def found(self, server: SiteServer, name: str) -> Any: ...

    def key(self, text: str) -> Key:
        return key_of(self.kind, text)

    def round(self, harness: SiteServerHarness, text: str) -> int:
        return int(harness.tracker(text).coordinator.round)

    def total(self, server: SiteServer) -> int:
        """Of all windows, as far as sites have reported it."""
        return int(self.found(server, "requests").known_total)

    def most(self, server: SiteServer) -> int:
        """What is published, or the most that sites may have spent."""
        return int(self.found(server, "requests").published_answer.estimate)

    def silent(self, server: SiteServer) -> tuple[str, ...]:
        """The sites that are silent, as readers see them."""
        return tuple(self.found(server, "requests").published_answer.silent)

    def open_windows(self, server: SiteServer) -> dict[int, int]:
        """By period: the totals."""
        found = self.found(server, "requests")
        return {period: window.known_total for period, window in found.open.items()}


class CounterItems(Items):
    kind = COUNTER
    left: type = LeaveAck
    rejected: type = CounterRejected
    reset: type = Rejoin

    def join(self, text: str, known: int = 0) -> list[UpItem]:
        return [Join(text, 0, known)]

    def report(self, text: str, total: int, round: int = 0) -> list[UpItem]:
        return [Report(text, round, total, total)]

    def leave(self, text: str, total: int) -> list[UpItem]:
        return [Leave(text, 0, total)]

    def found(self, server: SiteServer, name: str) -> Any:
        return server.counters[name]


class FamilyItems(Items):
    kind = FAMILY
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

    def found(self, server: SiteServer, name: str) -> Any:
        return server.families.by_name[name]


class BudgetItems(Items):
    """A total is what a site has spent of GRANTED units; it holds the others."""

    kind = BUDGET
    left: type = BudgetLeaveAck
    rejected: type = BudgetRejected
    reset: type = BudgetRejected
    limit: Mapping[str, int] = {"max_memberships": 1}
    uninvited: Sequence[type] = (BudgetRejected,)
    opens_again = False

    def create(self, server: SiteServer, text: str) -> None:
        key = key_of(COUNTER, text)
        if key.name not in server.budgets.by_name:
            rule = BudgetRule(3 * GRANTED, per=parse_calendar(key.calendar).per if key.is_window else None, slack=0)
            server.budgets.create(key.name, rule)

    def delete(self, server: SiteServer, name: str) -> None:
        server.budgets.delete(name)

    def join(self, text: str, known: int = 0) -> list[UpItem]:
        return self.report(text, known) if known else [Ask(self._id(text), 1, 0, 0, 0, 0, 0, 0, want=GRANTED)]

    def report(self, text: str, total: int, round: int = 0) -> list[UpItem]:
        return [Ask(self._id(text), 1 + total, 1, 1, GRANTED, 0, total, GRANTED - total)]

    def leave(self, text: str, total: int) -> list[UpItem]:
        return [BudgetLeave(self._id(text), 1, total)]

    def knows(self, text: str, total: int) -> dict[str, int]:
        return {}  # it knows itself what it has spent, and its successor hands it in

    def found(self, server: SiteServer, name: str) -> Any:
        return server.budgets.by_name[name]

    def key(self, text: str) -> Key:
        name, period = self._id(text)
        return Key(BUDGET, name, period=period)

    def _id(self, text: str) -> BudgetId:
        key = key_of(COUNTER, text)
        return BudgetId(key.name, key.period)

    def round(self, harness: SiteServerHarness, text: str) -> int:
        return 0  # it has none

    def total(self, server: SiteServer) -> int:
        return sum(self.open_windows(server).values())

    def most(self, server: SiteServer) -> int:
        return int(self.found(server, "requests").usage.upper)

    def silent(self, server: SiteServer) -> tuple[str, ...]:
        return tuple(str(session.site_id.site) for session in server.sessions if session.unreachable)

    def open_windows(self, server: SiteServer) -> dict[int, int]:
        periods = self.found(server, "requests").periods
        return {number: period.coordinator.usage.lower for number, period in periods.items()}


GRANTED = 100
ALL_ITEMS: list[Items] = [CounterItems(), BudgetItems(), FamilyItems()]
