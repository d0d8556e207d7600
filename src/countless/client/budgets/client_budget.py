"""`client.budget(name)`: the calls that a program has, and nothing that the exchange with the coordinator needs."""

from countless.client.budgets.budget import BudgetPart, BudgetRequest
from countless.client.budgets.spendable import Spendable
from countless.core.budget.rule import BudgetRule


class ClientBudget(Spendable):
    """A budget in this process, from `Client.budget`. Safe to use from many threads and in signal handlers.

    A signal handler that interrupted a request of its own thread gets a unit that is set aside, or `starved`. Call it
    with `wait=0` there: the interrupted thread may hold the client's lock.
    """

    def __init__(self, part: BudgetPart) -> None:
        self._part = part
        # The bound method itself: a call in between would make most requests a fifth slower.
        self.take = part.take  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"<ClientBudget {self._part}>"

    @property
    def name(self) -> str:
        return self._part.name

    @property
    def remaining(self) -> int:
        """Units this process can admit now without a message."""
        return self._part.remaining

    @property
    def left(self) -> int:
        """Units left for all processes, as far as this one knows: at least 1 until the budget is exhausted."""
        return self._part.left

    @property
    def rule(self) -> BudgetRule | None:
        """Its `BudgetRule`. None until the coordinator has answered the first request."""
        return self._part.rule

    @property
    def resets_at(self) -> float | None:
        """End of the current period, in seconds since 1970. None without periods, or before the rule is known."""
        return self._part.resets_at

    def retry_after(self, n: int = 1) -> float | None:
        """Return the seconds until a refused request of `n` units may succeed, or None if that is not known.

        With periods, until the current one ends. If the budget is rolling, until enough of what this process itself
        took comes back.
        """
        return self._part.retry_after(n)

    @property
    def overdraft(self) -> int:
        """Units this process admitted beyond what it was granted, because the rule says `overdraft`."""
        return self._part.overdraft

    def _request(self, n: int, *, hold: bool) -> BudgetRequest:
        return BudgetRequest(self._part, n, hold=hold)
