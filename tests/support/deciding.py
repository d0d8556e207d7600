"""A client whose budgets decide as a test says."""

from collections.abc import Callable
from time import time
from typing import Any

import countless
from countless.client.transport.endpoint import Endpoint
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.rule import BudgetRule
from support.local_counters import counts_of

MINUTE = BudgetRule(100, per="minute")


class Budget:
    """Decides as it is told, and keeps what was asked for."""

    def __init__(self, name: str, decide: Callable[[str], Reason], rule: BudgetRule) -> None:
        self.name = name
        self.rule = rule
        self.resets_at = None if rule.per is None else time() + 17
        self.left = 41
        self.taken: list[int] = []
        self._decide = decide

    def retry_after(self, n: int = 1) -> float | None:
        if self.rule.rolling is not None:
            return 3.2 * n
        return None if self.resets_at is None else self.resets_at - time()

    async def atake(self, n: int, wait: float) -> Decision:
        return self.take(n, wait)

    def take(self, n: int, wait: float) -> Decision:
        self.taken.append(n)
        reason = self._decide(self.name)
        if reason is Reason.EXHAUSTED:
            self.left = n - 1
        return Decision(reason, self.retry_after(n) if reason is Reason.EXHAUSTED else None)


class Client(countless.Client):
    """Counts as a client does, and has budgets that decide as they are told."""

    def __init__(self, decide: Callable[[str], Reason], rule: BudgetRule = MINUTE) -> None:
        super().__init__(Endpoint.parse("http://127.0.0.1:2686"), None, "test", disabled=True)
        self.made: dict[str, Budget] = {}
        self._decide, self._rule = decide, rule

    def budget(self, name: str) -> Any:
        super().budget(name)  # which validates the name
        return self.made.setdefault(name, Budget(name, self._decide, self._rule))

    def counted(self) -> dict[str, int]:
        return {name: count for name, count in counts_of(self).items() if count}


def always(reason: Reason) -> Callable[[str], Reason]:
    return lambda name: reason
