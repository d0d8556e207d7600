"""Several budgets that are spent together: a request is admitted by all of them or by none.

A request is decided by one thread that has the client's lock, so no other request comes in between. Budgets that refuse
it are tried first, then those that have too few units. While it waits for the coordinator it holds nothing: units that
are there already stay at the site, where other requests may take them.
"""

from threading import RLock

from countless.client.budgets.budget import BudgetPart, BudgetRequest
from countless.client.budgets.requests import ALLOWED, HoldType, RequestKey, Waiter
from countless.client.budgets.spendable import Spendable
from countless.core.budget.decision import Decision


class BudgetGroup(Spendable):
    """The budgets that `client.together(...)` was given."""

    def __init__(self, parts: tuple[BudgetPart, ...], lock: RLock) -> None:
        self._parts = parts
        self._lock = lock

    def __repr__(self) -> str:
        return f"<BudgetGroup of {', '.join(repr(budget.name) for budget in self._parts)}>"

    def _request(self, n: int, *, hold: bool) -> "GroupRequest":
        parts = [BudgetRequest(part, n, hold=True, to_spend=not hold) for part in self._parts]
        return GroupRequest(self._parts, parts, n, self._lock, hold=hold)


class GroupRequest:
    """A request to several budgets."""

    def __init__(
        self, budgets: tuple[BudgetPart, ...], parts: list[BudgetRequest], n: int, lock: RLock, *, hold: bool
    ) -> None:
        self.key: RequestKey = (*(budget.name for budget in budgets), n)
        self._budgets = budgets
        self._parts = parts
        self._n = n
        self._lock = lock
        self._hold = hold
        self._decided_by = parts[0]  # the budget that has refused, or waits

    @property
    def budget(self) -> str:
        return self._decided_by.budget

    def attempt(self) -> Decision | None:
        with self._lock:
            short = [part for part in self._parts if not part.fits]
            if short and not any(part.refused for part in short):
                self._decided_by = short[-1]
                return None
            return self.ask()

    def ask(self) -> Decision | None:
        with self._lock:
            admitted: list[BudgetRequest] = []
            decision: Decision | None = ALLOWED
            try:
                for part in sorted(self._parts, key=lambda part: (not part.refused, part.fits)):
                    if decision is None and part.fits:
                        part.stay()
                        continue
                    outcome = part.ask()
                    if outcome:
                        admitted.append(part)
                        continue
                    self._decided_by, decision = part, outcome
                    if outcome is not None:
                        break
            except BaseException:
                self._settle(admitted, 0)
                raise
            if not decision:
                self._settle(admitted, 0)
            elif not self._hold:
                self._settle(admitted, self._n)
            if decision:
                for budget in self._budgets:
                    budget.end_lingering(self.key)
            return decision

    def stay_queued(self) -> None:
        """No budget grants units for it while it waits for another one."""

    def linger(self, wants: bool) -> None:
        for part in self._parts:
            part.linger(wants)

    def start_waiting(self, waiter: Waiter) -> None:
        self._budgets[0].start_waiting(waiter, self._budgets)

    def stop_waiting(self, waiter: Waiter) -> None:
        with self._lock:
            for budget in self._budgets:
                budget.stop_waiting(waiter)

    @property
    def waits_for_connection(self) -> bool:
        return self._decided_by.waits_for_connection

    def timed_out(self) -> Decision:
        with self._lock:
            short = [part for part in self._parts if not part.fits]
            decision = None
            if all(part.may_overdraw for part in short):
                for part in short:
                    part.overdraw()
                decision = self.attempt()
            return self._decided_by.undecided() if decision is None else decision

    def hold(self, kind: type[HoldType], n: int, expires_in: float | None) -> HoldType:
        if expires_in is None:
            expires_in = max(part.usual_expiry for part in self._parts)
        return self._parts[0].open_hold(kind, n, expires_in, self._settle_all)

    def undo(self) -> None:
        if self._hold:
            self._settle_all(self._n, 0)

    def _settle_all(self, units: int, used: int) -> None:
        with self._lock:
            self._settle(self._parts, used)

    def _settle(self, parts: list[BudgetRequest], used: int) -> None:
        for part in parts:
            part.settle(self._n, used)
