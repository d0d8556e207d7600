"""Answers to Envoy: OK, or OVER_LIMIT with the response that its client gets."""

import logging
from collections import Counter as Tally
from math import ceil
from typing import Any

from countless.client.budgets.client_budget import ClientBudget
from countless.client.http_requests import SparseLog
from countless.core.budget.hold import Hold
from countless.errors import AboveLimit, LimitExceeded
from countless.integrations.envoy.messages import MAX_UINT32, OK, OVER_LIMIT, UNITS, RateLimitResponse
from countless.integrations.envoy.rules import EnvoyRules, Match
from countless.limiting.limit import atake_up_to
from countless.limiting.responses import PROBLEMS

PASSED, REFUSED = "ok", "over_limit"


class Decisions:
    """The decisions of one agent. All limits of a request admit it, or none is charged."""

    def __init__(self, rules: EnvoyRules) -> None:
        self.answers: Tally[str] = Tally({PASSED: 0, REFUSED: 0})
        self.unknown = 0  # requests with a descriptor that no limit is for
        self._rules = rules
        self._log = SparseLog()

    async def answer(self, request: Any) -> Any:
        """The `RateLimitResponse` to a `RateLimitRequest`."""
        response = RateLimitResponse(overall_code=OK)
        found = [self._find(request.domain, descriptor) for descriptor in request.descriptors]
        for _ in found:
            response.statuses.add(code=OK)
        asked = [(place, match, _hits(request, place)) for place, match in enumerate(found) if match is not None]
        if None in found or not found:
            self._note_unknown(request)
            if not self._rules.passes_unknown:
                self._refuse(response, *range(len(found)))
                asked = []
        late = [each for each in asked if each[1].late and each[2]]  # these have happened: each is charged by itself
        others = [each for each in asked if each not in late]
        if len(others) == 1 and others[0][-1]:
            late += others
        else:
            await self._hold_all(response, others)
        for each in late:
            await self._take(response, *each)
        self.answers[PASSED if response.overall_code == OK else REFUSED] += 1
        return response

    def _find(self, domain: str, descriptor: Any) -> Match | None:
        if descriptor.is_negative_hits:  # what was spent stays spent
            return None
        return self._rules.find(domain, [(entry.key, entry.value) for entry in descriptor.entries])

    async def _take(self, response: Any, place: int, match: Match, hits: int) -> None:
        try:
            budget = await match.limit.atake(match.values, hits)
        except PROBLEMS as problem:
            if match.late and isinstance(problem, LimitExceeded | AboveLimit):
                await atake_up_to(match.limit.budget_of(match.values), hits, match.limit.wait)
            self._refuse_for(response, place, match, problem)
            return
        if budget is not None:
            _show(response, place, match, budget)

    async def _hold_all(self, response: Any, asked: list[tuple[int, Match, int]]) -> None:
        """Hold what each limit asks for, and spend it when all have admitted the request.

        A descriptor without hits asks whether one would be admitted.
        """
        held: list[tuple[int, Match, ClientBudget, Hold, int]] = []
        spent = False
        try:
            for place, match, hits in asked:
                try:
                    found = await match.limit.areserve(match.values, max(1, hits))
                except PROBLEMS as problem:
                    self._refuse_for(response, place, match, problem)
                    return
                if found is not None:
                    held.append((place, match, *found, hits))
            spent = True
        finally:  # even if Envoy no longer waits
            for _, _, _, hold, hits in held:
                hold.settle(hits if spent else 0)
        for place, match, budget, _, _ in held:
            _show(response, place, match, budget)

    def _refuse_for(self, response: Any, place: int, match: Match, problem: Any) -> None:
        refusal = match.limit.refusal(problem, match.values)
        response.raw_body = refusal.body
        for key, value in refusal.headers:
            if key != "content-length":
                response.response_headers_to_add.add(key=key, value=value)
        if isinstance(problem, LimitExceeded):
            _describe(response.statuses[place], match, match.limit.budget_of(match.values))
        self._refuse(response, place)

    def _refuse(self, response: Any, *places: int) -> None:
        response.overall_code = OVER_LIMIT
        for place in places:
            response.statuses[place].code = OVER_LIMIT

    def _note_unknown(self, request: Any) -> None:
        self.unknown += 1
        descriptors = [[entry.key for entry in each.entries] for each in request.descriptors]
        self._log.log(
            logging.WARNING, "descriptor without a limit: domain=%.100r descriptors=%.500r answer=%s",
            request.domain, descriptors, "pass" if self._rules.passes_unknown else "refuse",
        )  # fmt: skip


def _hits(request: Any, place: int) -> int:
    descriptor = request.descriptors[place]
    hits: int = descriptor.hits_addend.value if descriptor.HasField("hits_addend") else request.hits_addend or 1
    return hits


def _show(response: Any, place: int, match: Match, budget: ClientBudget) -> None:
    for key, value in match.limit.headers(budget):
        response.response_headers_to_add.add(key=key, value=value)
    _describe(response.statuses[place], match, budget)


def _describe(status: Any, match: Match, budget: ClientBudget) -> None:
    rule = budget.rule
    if rule is None:  # of an earlier coordinator
        return
    status.current_limit.requests_per_unit = min(rule.limit, MAX_UINT32)
    status.current_limit.unit = UNITS.get(rule.per or "", 0)
    status.current_limit.name = match.limit.policy
    status.limit_remaining = min(budget.left, MAX_UINT32)
    retry = budget.retry_after()
    if retry is not None:
        status.duration_until_reset.seconds = ceil(retry)
