"""Budgets over HTTP, for programs in any language: `POST /api/v1/budgets/{name}/take`, `reserve` and `settle`."""

from asyncio import TimerHandle, get_running_loop
from collections import Counter as Tally
from collections.abc import Callable
from math import ceil
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from countless.agent.bodies import json, read_body
from countless.agent.holds import Holds
from countless.client.budgets.client_budget import ClientBudget
from countless.client.budgets.requests import WAIT_S
from countless.client.client import Client
from countless.core.budget.amounts import MAX_AMOUNT
from countless.core.budget.decision import Reason
from countless.errors import LimitExceeded, Starved, Unreachable

MAX_WAIT_S = 60.0
MAX_HOLD_S = 86_400.0
_REFUSALS = {
    Reason.EXHAUSTED: (429, "not enough is left"),
    Reason.STARVED: (503, "the coordinator did not answer in time"),
    Reason.UNREACHABLE: (503, "there is no connection to the coordinator"),
}
_REASONS = {LimitExceeded: Reason.EXHAUSTED, Starved: Reason.STARVED, Unreachable: Reason.UNREACHABLE}

Amount = Annotated[int, Meta(ge=1, le=MAX_AMOUNT)]
Wait = Annotated[float, Meta(ge=0, le=MAX_WAIT_S)]


class Take(Struct, forbid_unknown_fields=True):
    n: Amount = 1
    wait: Wait = WAIT_S


class Reserve(Struct, forbid_unknown_fields=True):
    n: Amount
    wait: Wait = WAIT_S
    expires_in: Annotated[float, Meta(gt=0, le=MAX_HOLD_S)] | None = None


class Settle(Struct, forbid_unknown_fields=True):
    hold: str
    used: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]


_AMOUNT = f"n: an integer from 1 to 2**62; wait: seconds from 0 to {MAX_WAIT_S:.0f}"
_TAKE = f"request for units ({_AMOUNT})"
_RESERVE = f"reservation ({_AMOUNT}; expires_in: seconds above 0, at most {MAX_HOLD_S:,.0f})"
_SETTLE = "settlement (hold: an id; used: an integer from 0 to the units of the hold)"
_decode_take = msgspec.json.Decoder(Take).decode
_decode_reserve = msgspec.json.Decoder(Reserve).decode
_decode_settle = msgspec.json.Decoder(Settle).decode


class AgentBudgets:
    """The budgets that programs use through this agent, and what they hold of them."""

    def __init__(self, client: Client) -> None:
        self.decisions: Tally[Reason] = Tally(dict.fromkeys(Reason, 0))
        self.starved_s = 0.0  # that requests waited, all of them in vain
        self.holds = Holds(_call_later)
        self._client = client

    async def take(self, request: Request) -> Response:
        """Spend units."""
        body = await read_body(request, lambda content: _decode_take(content or b"{}"), _TAKE)
        budget = self._client.budget(request.path_params["name"])
        decision = await budget.atake(body.n, body.wait)
        if not decision:
            return self._refusal(budget, decision.reason, body)
        self.decisions[Reason.ALLOWED] += 1
        return json({"decision": Reason.ALLOWED})

    async def reserve(self, request: Request) -> Response:
        """Hold units until the program says how many it has used, or until they expire."""
        body = await read_body(request, _decode_reserve, _RESERVE)
        budget = self._client.budget(request.path_params["name"])
        self.holds.require_place()
        try:
            hold = await budget.areserve(body.n, body.wait, body.expires_in)
        except (LimitExceeded, Starved, Unreachable) as refusal:
            return self._refusal(budget, _REASONS[type(refusal)], body)
        self.decisions[Reason.ALLOWED] += 1
        identity = self.holds.add(budget.name, hold)
        return json({"decision": Reason.ALLOWED, "hold": identity, "units": body.n, "expires_in": hold.expires_in})

    async def settle(self, request: Request) -> Response:
        """End a hold. The same request again has the same answer, for a minute."""
        body = await read_body(request, _decode_settle, _SETTLE)
        returned = self.holds.settle(request.path_params["name"], body.hold, body.used)
        return json({"spent": body.used, "returned": returned})

    def _refusal(self, budget: ClientBudget, reason: Reason, body: Take | Reserve) -> Response:
        self.decisions[reason] += 1
        if reason is Reason.STARVED:
            self.starved_s += body.wait
        status, message = _REFUSALS[reason]
        content: dict[str, object] = {"decision": reason, "error": f"budget {budget.name!r}: {message}"}
        retry_after = budget.retry_after(body.n) if reason is Reason.EXHAUSTED else None
        if retry_after is None:
            return json(content, status)
        seconds = ceil(retry_after)
        return json({**content, "retry_after": seconds}, status, retry_after=str(seconds))


def _call_later(seconds: float, function: Callable[[str], None], identity: str) -> TimerHandle:
    return get_running_loop().call_later(seconds, function, identity)
