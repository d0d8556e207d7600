"""`client.budget(name)`: the calls that a program has, and nothing that the exchange with the coordinator needs."""

from countless.client.budgets.budget import BudgetPart, BudgetRequest
from countless.client.budgets.spendable import Spendable
from countless.core.budget.rule import BudgetRule


class ClientBudget(Spendable):
    """The part of a budget that this process may spend. Safe to use from many threads and in signal handlers.

    A handler that has interrupted a request of its own thread gets a unit that is set aside, or is told `starved`. It
    should not wait: the thread that it has interrupted may hold the client's lock.
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
        """The units that this process can admit now without a message."""
        return self._part.remaining

    @property
    def rule(self) -> BudgetRule | None:
        """None until the coordinator has sent it, with the answer to the first request."""
        return self._part.rule

    @property
    def resets_at(self) -> float | None:
        """When the present period ends, in seconds since 1970; None if the budget has none, or its rule is unknown."""
        return self._part.resets_at

    def retry_after(self, n: int = 1) -> float | None:
        """Seconds until a request of `n` units that was refused may succeed, if that is known.

        With periods: until the present one ends. If the budget is rolling: until enough of what this process has taken
        itself comes back.
        """
        return self._part.retry_after(n)

    @property
    def overdraft(self) -> int:
        """Units that this process has admitted beyond what it was granted, because its rule is `overdraft`."""
        return self._part.overdraft

    def _request(self, n: int, *, hold: bool) -> BudgetRequest:
        return BudgetRequest(self._part, n, hold=hold)
