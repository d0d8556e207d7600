"""Calls of models, and what they hold of their budgets until it is known what they have used.

Nothing here knows LiteLLM. A call asks for its measures one after the other (jobs, requests, tokens, money), and for
all budgets of one measure together. If one refuses, what the others have admitted goes back.
"""

import logging
from asyncio import TimerHandle, get_running_loop
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_hex

from countless.client.budgets.client_budget import ClientBudget
from countless.client.client import Client
from countless.client.default import default_client, expect_by_default
from countless.client.expected_rules import HELD, RATE, command_for
from countless.client.http_requests import SparseLog
from countless.core.budget.decision import Reason
from countless.core.budget.hold import Hold
from countless.errors import BudgetRefused, HoldExpired, InvalidParameter, UnknownBudget
from countless.integrations.litellm.settings import LiteLLMSettings, Measure
from countless.limiting.limit import atake_up_to
from countless.limiting.responses import INVALID, PROBLEMS, USED_UP, reason_of
from countless.wire.keys import rule_of_fields, templates_of

GRACE_S = 30.0  # after an answer was sent, for its usage to arrive
REFUSED, OVER, UNCHARGED = "limited_requests", "llm_above_reserve", "llm_not_charged"  # counters

Amounts = Mapping[Measure, int]
NOTHING: Amounts = dict.fromkeys(Measure, 0)
FAILED: Amounts = {Measure.TOKENS: 0, Measure.MONEY: 0}  # it was a request
log = logging.getLogger("countless")


class Call:
    """One call of a model."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.streams = False  # the model has begun to answer
        self.ended = False  # nothing more is sent to the caller
        self.partial: Mapping[Measure, int | None] | None = None  # used by a stream that has broken off
        self.parts: dict[Measure, tuple[tuple[ClientBudget, ...], Hold | None]] = {}
        self.timer: TimerHandle | None = None

    def settle(self, used: Amounts) -> dict[Measure, int]:
        """End all holds; what is not in `used` counts as spent. The units used above what was held."""
        over = {}
        for measure, (_, hold) in self.parts.items():
            held = 0 if hold is None else hold.units
            amount = 0 if measure is Measure.IN_FLIGHT else used.get(measure, held)
            if hold is not None:
                with suppress(HoldExpired):  # it counts as spent
                    hold.settle(min(amount, held))
            if amount > held:
                over[measure] = amount - held
        return over

    def holds(self, measure: Measure) -> bool:
        _, hold = self.parts.get(measure, ((), None))
        return hold is not None

    def leave(self) -> None:
        """It is in flight no more."""
        _, hold = self.parts.get(Measure.IN_FLIGHT, ((), None))
        if hold is not None:
            with suppress(HoldExpired):
                hold.settle(0)


class ModelCalls:
    """The calls that have not ended, by their ids."""

    def __init__(self, settings: LiteLLMSettings, client: Client | None = None) -> None:
        self._settings = settings
        self._client = client
        self._calls: dict[str, Call] = {}
        self._log = SparseLog()
        self._rules: dict[str, str] = {}  # and the options of the commands that create them
        for measure in Measure:
            options = HELD if measure is Measure.IN_FLIGHT else RATE
            for rule in map(rule_of_fields, settings.templates(measure)):
                self._rules[rule] = options
                if client is None:
                    expect_by_default(rule, options)
                else:
                    client.expect(rule, options)

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, identity: str) -> bool:
        return identity in self._calls

    def client(self) -> Client:
        if self._client is None:
            self._client = default_client()  # here, after all forks
        return self._client

    async def admit(self, model: str, values: Mapping[str, str | None], units: Amounts) -> str:
        """Hold the units of a call and return its id; raise what a budget raises that refuses."""
        call = Call(model)
        try:
            for measure, names in self._settings.names(values).items():
                await self._admit(call, measure, names, units[measure])
        except BaseException:
            call.settle(NOTHING)
            raise
        identity = token_hex(16)  # nobody can guess that of another call
        self._calls[identity] = call
        expires_in = self._settings.expires_in
        call.timer = get_running_loop().call_later(expires_in, self._expire, identity, "it has not ended")
        return identity

    async def _admit(self, call: Call, measure: Measure, names: tuple[str, ...], units: int) -> None:
        hold: Hold | None = None
        try:
            budgets = tuple(self.client().budget(name) for name in names)
            together, times = self.client().together(*budgets), (self._settings.wait, self._settings.expires_in)
            if measure is Measure.IN_FLIGHT:
                hold = await together.aacquire(units, *times)
            elif units:
                hold = await together.areserve(units, *times)
        except PROBLEMS as problem:
            self._pass_or_raise(problem)
        else:
            call.parts[measure] = (budgets, hold)

    def _pass_or_raise(self, problem: BudgetRefused | InvalidParameter) -> None:
        reason = reason_of(problem)
        passes = self._settings.on_unreachable == "allow" and reason not in (*USED_UP, INVALID)
        mode = "let_through" if passes else "enforced"
        self.client().counter(REFUSED).labels(policy="litellm", reason=reason, mode=mode).inc()
        create = ""
        if isinstance(problem, UnknownBudget):
            rule = next(each for each in (problem.budget, *templates_of(problem.budget)) if each in self._rules)
            create = f"; create the rule: {command_for(rule, self._rules[rule])}"
        level = logging.INFO if reason == Reason.EXHAUSTED else logging.WARNING
        self._log.log(level, "call not admitted: mode=%s reason=%s problem=%s%s", mode, reason, problem, create)
        if not passes:
            raise problem

    def began(self, identity: str) -> None:
        """The model streams: from now on it may have charged for something."""
        if call := self._calls.get(identity):
            call.streams, call.partial = True, None  # what has broken off before is continued by another attempt

    async def interrupted(self, identity: str, used: Mapping[Measure, int | None]) -> None:
        """An attempt has failed. If it was a stream and is not continued, it has used this."""
        call = self._calls.get(identity)
        if call is not None and call.streams:
            call.partial = used
            if call.ended:
                await self.settle(identity, used)

    async def answered(self, identity: str) -> None:
        """Nothing more is sent to the caller; its usage may still come."""
        if call := self._calls.get(identity):
            call.leave()
            call.ended = True
            if call.timer is not None:
                call.timer.cancel()
            call.timer = get_running_loop().call_later(GRACE_S, self._expire, identity, "no usage")
            if call.partial is not None:
                await self.settle(identity, call.partial)

    async def failed(self, identity: str) -> None:
        """The call has failed: no tokens were used, unless the model had begun to answer."""
        call = self._calls.get(identity)
        if call is not None and call.streams:
            await self.answered(identity)
        else:
            self._end(identity, FAILED)

    def spend(self, identity: str) -> None:
        """Settle a call of which nobody will say what it has used: everything it holds counts as spent."""
        self._end(identity, {})

    async def settle(self, identity: str, used: Mapping[Measure, int | None]) -> None:
        """The call has used so much. None: it is not known, and what it holds counts as spent."""
        call = self._calls.get(identity)
        if call is None:
            return
        known = {measure: units for measure, units in used.items() if units is not None}
        if unknown := sorted(measure for measure in used if measure not in known and call.holds(measure)):
            self._log.log(
                logging.WARNING, "usage missing, all that was reserved counts as spent: model=%s missing=%s",
                call.model, " and ".join(unknown),
            )  # fmt: skip
        for measure, units in self._end(identity, known).items():
            await self._charge(call, measure, units)

    async def _charge(self, call: Call, measure: Measure, over: int) -> None:
        """Take what a call has used above what it held, or as much of that as is left."""
        self.client().counter(OVER).labels(measure=measure, model=call.model).add(over)
        for budget in call.parts[measure][0]:
            if rest := over - await atake_up_to(budget, over, self._settings.wait):
                self.client().counter(UNCHARGED).labels(measure=measure, model=call.model).add(rest)
                self._log.log(
                    logging.WARNING, "usage above the reserve not charged: budget=%s model=%s units=%d",
                    budget.name, call.model, rest,
                )  # fmt: skip

    def _expire(self, identity: str, reason: str) -> None:
        if call := self._calls.get(identity):
            self._log.log(
                logging.WARNING, "call not settled, all that was reserved counts as spent: model=%s reason=%s",
                call.model, reason,
            )  # fmt: skip
            self._end(identity, {})

    def _end(self, identity: str, used: Amounts) -> dict[Measure, int]:
        call = self._calls.pop(identity, None)
        if call is None:
            return {}
        if call.timer is not None:
            call.timer.cancel()
        return call.settle(used)
