"""One limit on requests, whatever carries them: the budget that a request spends, and the answer if it may not.

Middleware, throttles and decorators are a few lines around a `Limit`.
"""

import logging
from time import monotonic, sleep
from typing import TypedDict
from weakref import WeakKeyDictionary

from countless.client.budgets.client_budget import ClientBudget
from countless.client.budgets.requests import WAIT_S, refusal
from countless.client.client import Client
from countless.client.default import default_client, expect_by_default
from countless.client.expected_rules import HELD, RATE, command_for
from countless.client.http_requests import SparseLog
from countless.clock import Clock
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.hold import Hold, Slot
from countless.core.parameters import require_bool, require_integer, require_seconds
from countless.errors import InvalidParameter, LimitExceeded, UnknownBudget
from countless.limiting.charge import Values, fields_of, part_of_name
from countless.limiting.responses import (
    INVALID,
    NO_BUDGET,
    PROBLEMS,
    USED_UP,
    Headers,
    Problem,
    Refusal,
    rate_limit_fields,
    reason_of,
    refusal_for,
    require_policy,
)
from countless.wire.keys import rule_of_fields, validate_counter

log = logging.getLogger("countless")
ON_UNREACHABLE = ("refuse", "allow")
PERIOD = "period"
PERIOD_WAIT_S = 60.0
PANES = 10  # of a rolling window: units come back at most a tenth of it late
MANY_FREE = 50  # requests, none of which was limited: the limit may be off by mistake


class Options(TypedDict, total=False):
    """The options of a limit, for those who pass them on."""

    wait: float | str
    timeout: float
    on_unreachable: str
    shadow: bool
    policy: str
    counter: str


class Limit:
    """A limit on requests by a budget, or by many whose names have fields: `keys/{key}`.

    Args:
        client: From `connect`. None: `default_client()`.
        budget: The name. What is in braces is replaced by the request's own.
        wait: Seconds to wait for the coordinator, if this process has too few units; or `"period"`: until it answers,
            and the period or the rolling window has room.
        timeout: The longest wait with `wait="period"`, in seconds.
        on_unreachable: While the quota is unknown, `refuse` refuses and `allow` admits.
        shadow: Admit everything; count and log what would have been refused.
        policy: Name of the limit in `RateLimit` fields, logs and the counter.
        counter: Name of a counter of the requests that were not admitted, by policy, reason and mode.
        hold: Whether the budget limits what runs at the same time.
    """

    def __init__(
        self,
        client: Client | None,
        budget: str,
        *,
        wait: float | str = WAIT_S,
        timeout: float = PERIOD_WAIT_S,
        on_unreachable: str = "refuse",
        shadow: bool = False,
        policy: str = "default",
        counter: str = "limited_requests",
        hold: bool = False,
    ) -> None:
        if client is not None and not isinstance(client, Client):
            raise InvalidParameter("client", client, "what countless.connect() returns")
        if on_unreachable not in ON_UNREACHABLE:
            raise InvalidParameter("on_unreachable", on_unreachable, f"one of: {', '.join(ON_UNREACHABLE)}")
        if isinstance(wait, str) and wait != PERIOD:
            raise InvalidParameter("wait", wait, f"a number of seconds, or {PERIOD!r}")
        require_seconds("timeout", timeout)
        require_bool("shadow", shadow)
        waits = wait == PERIOD and not shadow
        self._timeout = timeout if waits else 0.0
        self.wait = wait if not isinstance(wait, str) else timeout if waits and on_unreachable == "refuse" else WAIT_S
        require_seconds("wait", self.wait)
        self.budget = budget
        self.fields = fields_of(budget)
        self._rule = rule_of_fields(budget)
        self._allow_unreachable = on_unreachable == "allow"
        self._shadow = shadow
        self.policy = require_policy(policy)
        self._counter = counter
        self._log = SparseLog()
        self._free: int | None = 0  # requests that were not limited; None once one is
        self._client = client
        validate_counter(counter)
        options = HELD if hold else RATE
        self._create = command_for(self._rule, options)
        if client is None:
            expect_by_default(self._rule, options)
        else:
            client.expect(self._rule, options)

    def client(self) -> Client:
        if self._client is None:
            self._client = default_client()
        return self._client

    def take(self, values: Values, cost: int) -> ClientBudget | None:
        """Spend the units of a request whose name has these fields; raise what `refusal` answers.

        The answer to the request gets the `RateLimit` fields of the budget that is returned. None: it is free, or was
        let through.
        """
        try:
            budget, attempts = self._budget_for(values, cost), Attempts(self.wait, self._timeout, monotonic)
            if budget is None:
                return None
            decision = budget.take(cost, attempts.wait)
            while pause := attempts.pause(budget, decision, cost):
                sleep(pause)
                decision = budget.take(cost, attempts.wait)
            if not decision:
                raise refusal(budget.name, decision, cost, self.wait)
        except PROBLEMS as problem:
            self._pass_or_raise(problem, values)
            return None
        return None if self._shadow else budget

    async def atake(self, values: Values, cost: int) -> ClientBudget | None:
        """`take` for asyncio, while other tasks run."""
        from asyncio import sleep

        try:
            budget, attempts = self._budget_for(values, cost), Attempts(self.wait, self._timeout, monotonic)
            if budget is None:
                return None
            decision = await budget.atake(cost, attempts.wait)
            while pause := attempts.pause(budget, decision, cost):
                await sleep(pause)
                decision = await budget.atake(cost, attempts.wait)
            if not decision:
                raise refusal(budget.name, decision, cost, self.wait)
        except PROBLEMS as problem:
            self._pass_or_raise(problem, values)
            return None
        return None if self._shadow else budget

    async def areserve(self, values: Values, cost: int) -> tuple[ClientBudget, Hold] | None:
        """Hold units until other limits of the request have decided, too. None and errors as for `take`."""
        try:
            budget = self._budget_for(values, cost)
            hold = None if budget is None else await budget.areserve(cost, self.wait)
        except PROBLEMS as problem:
            self._pass_or_raise(problem, values)
            return None
        return None if budget is None or hold is None else (budget, hold)

    def acquire(self, values: Values, cost: int) -> Slot | None:
        """Hold units while something runs. None if it is free, or was let through. Raises what `take` raises."""
        try:
            budget = self._budget_for(values, cost)
            return None if budget is None else budget.acquire(cost, self.wait)
        except PROBLEMS as problem:
            self._pass_or_raise(problem, values)
            return None

    async def aacquire(self, values: Values, cost: int) -> Slot | None:
        try:
            budget = self._budget_for(values, cost)
            return None if budget is None else await budget.aacquire(cost, self.wait)
        except PROBLEMS as problem:
            self._pass_or_raise(problem, values)
            return None

    def _name(self, values: Values) -> str:
        return self.budget.format_map({field: part_of_name(field, values[field]) for field in self.fields})

    def _budget_for(self, values: Values, cost: int) -> ClientBudget | None:
        require_integer("cost", cost, 0)
        if cost:
            self._free = None
            return self.budget_of(values)
        self._note_free()
        return None

    def _note_free(self) -> None:
        if self._free is None:
            return
        self._free += 1
        if self._free == MANY_FREE:
            log.warning(
                "no request limited yet: policy=%s budget=%s requests=%d: every key was None or cost 0; "
                "what they come from, such as authentication, must run before the limit",
                *(self.policy, self.budget, MANY_FREE),
            )

    def budget_of(self, values: Values) -> ClientBudget:
        return self.client().budget(self._name(values))

    def _pass_or_raise(self, problem: Problem, values: Values) -> None:
        """Log and count a request without units, and raise unless it is let through."""
        reason = reason_of(problem)
        unreachable = reason not in (*USED_UP, INVALID)
        passes = self._shadow or (self._allow_unreachable and unreachable)
        mode = "shadow" if self._shadow else "let_through" if passes else "enforced"
        self.client().counter(self._counter).labels(policy=self.policy, reason=reason, mode=mode).inc()
        usual = reason == Reason.EXHAUSTED and mode == "enforced"
        detail = f": {problem}" if isinstance(problem, UnknownBudget | InvalidParameter) else ""
        create = f"; create the rule: {self._create}" if reason == NO_BUDGET else ""
        self._log.log(
            logging.INFO if usual else logging.WARNING,
            "request not admitted: mode=%s policy=%s budget=%s reason=%s%s",
            *(mode, self.policy, self.budget if reason == INVALID else self._name(values), reason, detail + create),
        )
        if not passes:
            _REFUSED[problem] = self, values
            raise problem

    def headers(self, budget: ClientBudget) -> Headers:
        """The `RateLimit` fields of the answer to a request that was admitted."""
        return rate_limit_fields(self.policy, budget, max(1, budget.left))

    def refusal(self, problem: Problem, values: Values) -> Refusal:
        """The answer to a request that was refused with this error."""
        fields: Headers = []
        if reason_of(problem) in USED_UP:
            budget = self.budget_of(values)
            fields = rate_limit_fields(self.policy, budget, budget.left)  # a smaller request may find units
        return refusal_for(problem, fields, [self.policy])


_REFUSED: WeakKeyDictionary[Exception, tuple[Limit, Values]] = WeakKeyDictionary()


def is_refusal(problem: Exception) -> bool:
    """True if `refusal_of` has an answer to requests that end with this error."""
    return problem in _REFUSED or isinstance(problem, LimitExceeded)


def refusal_of(problem: Exception) -> Refusal:
    """Return the answer to a request that ends with this error. Raise the error if no limit has refused the request."""
    if isinstance(problem, PROBLEMS) and problem in _REFUSED:
        limit, values = _REFUSED[problem]
        return limit.refusal(problem, values)
    if isinstance(problem, LimitExceeded):  # the program itself has asked a budget
        return refusal_for(problem)
    raise problem


class Attempts:
    """The attempts of a request. With a timeout it waits until the period, or the rolling window, has room."""

    def __init__(self, wait: float, timeout: float, clock: Clock) -> None:
        self._wait = wait
        self._clock = clock
        self._deadline = clock() + timeout if timeout else None

    @property
    def wait(self) -> float:
        """Seconds that the next one may wait for the coordinator."""
        return self._wait if self._deadline is None else min(self._wait, max(0.0, self._deadline - self._clock()))

    def pause(self, budget: ClientBudget, decision: Decision, cost: int) -> float:
        """Seconds until another attempt may succeed; 0: it ends here."""
        rule = budget.rule
        if self._deadline is None or decision.reason is not Reason.EXHAUSTED or rule is None:
            return 0.0
        retry = budget.retry_after(cost)
        if retry is None and rule.rolling is not None:  # what comes back was admitted elsewhere
            retry = rule.rolling / PANES
        if retry is None or self._clock() + retry > self._deadline:
            return 0.0
        return retry or 0.001


async def atake_up_to(budget: ClientBudget, units: int, wait: float) -> int:
    """Take as many of these units as are left: they are used already. Return how many were taken."""
    taken, part = 0, units
    while part and taken < units:
        part = min(part, units - taken)
        try:
            reason: str = (await budget.atake(part, wait)).reason
        except PROBLEMS as problem:
            reason = reason_of(problem)
        if reason == Reason.ALLOWED:
            taken += part
        elif reason == INVALID or reason in USED_UP:
            part //= 2
        else:
            break
    return taken
