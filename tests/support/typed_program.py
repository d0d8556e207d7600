"""What type checkers know of the calls that programs make. mypy reads this file with all others; it is never run.

A result that becomes `Any`, or a mistake that is not refused any more (an unused `type: ignore`), is an error of mypy.
"""

from typing import Literal, assert_type

import countless
from countless.core.answer import State
from countless.core.budget.decision import Reason
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import Usage
from countless.core.family.answer import Top
from countless.core.family.distribution import Quantile, Rank
from countless.core.periods.spans import SpanCount, SpanRate
from countless.core.periods.window import TotalAnswer
from countless.errors import LimitExceeded, ServiceError
from countless.inprocess.tracker import CountingSite


def counting(client: countless.Client) -> None:
    requests = client.counter("requests", per="hour")
    assert_type(requests, countless.Counter)
    assert_type(requests.labels(code=200, route="/a"), countless.Counter)
    assert_type((requests.name, requests.count, requests.overflow_count), tuple[str, int, int])
    assert_type(client.distribution("ms"), countless.ClientDistribution)

    @requests.count_calls
    def handle(path: str, n: int = 1) -> bytes:
        return path.encode() * n

    @requests.count_exceptions(ValueError)
    async def parse(text: str) -> int:
        return int(text)

    assert_type(handle("/", n=2), bytes)
    handle(5)  # type: ignore[arg-type]
    assert_type((client.flush(), client.close(), client.connected), tuple[bool, bool, bool])


async def reading(client: countless.Client) -> None:
    total = client.answer("requests")
    assert_type(total, countless.TotalCount)
    assert_type(total.state, Literal["exact", "holding", "learning", "degraded"])
    assert_type(await client.aanswer("requests"), countless.TotalCount)
    assert_type(client.window("requests"), countless.WindowCount)
    assert_type(client.rolling("requests", "15m"), countless.RollingCount)
    assert_type(client.rate("requests"), countless.Rate)
    assert_type(client.top("requests").series, tuple[countless.SeriesCount, ...])
    assert_type(client.quantile("ms", 0.5).quantiles, tuple[countless.QuantileValue, ...])
    watch = client.watch("requests", over=5, possibly=lambda answer: assert_type(answer, countless.TotalCount))
    assert_type(watch, countless.Watch)
    assert_type(watch.verdict, Literal["possibly", "certainly"] | None)
    try:
        countless.Reader().answer("requests")
    except ServiceError as error:
        assert_type(error.status, int | None)


async def spending(client: countless.Client) -> None:
    budget = client.budget("tokens")
    assert_type(budget, countless.ClientBudget)
    assert_type(budget.take(), countless.Decision)
    assert_type((await budget.atake()).reason, Reason)
    assert_type(client.together(budget).reserve(3), countless.Hold)
    async with budget.areserve(3) as hold:
        assert_type(hold, countless.Hold)
    assert_type(await budget.aacquire(), countless.Slot)
    assert_type((budget.rule, budget.resets_at), tuple[BudgetRule | None, float | None])
    try:
        budget.reserve(3)
    except LimitExceeded as error:
        assert_type(error.retry_after, float | None)


def in_process() -> None:
    tracker = countless.Tracker(sites=3, scheme="dithered", adversary="oblivious")
    assert_type(tracker.site(0), CountingSite)
    assert_type(tracker.answer, countless.Answer | TotalAnswer)
    assert_type((tracker.answer.bounds, tracker.answer.state), tuple[tuple[float, float], State])
    assert_type((tracker.window(), tracker.rate()), tuple[SpanCount, SpanRate])
    assert_type(countless.Budget(10).usage, Usage)
    assert_type(countless.Family().top(), Top)
    distribution = countless.Distribution()
    assert_type((distribution.quantile(0.5), distribution.rank(3)), tuple[Quantile | None, Rank])


def mistakes(client: countless.Client) -> None:
    countless.Trackr()  # type: ignore[attr-defined]
    countless.Tracker(scheme="ditherd")  # type: ignore[arg-type]
    countless.Tracker(adversary="nice")  # type: ignore[arg-type]
    countless.Tracker(per="fortnight")  # type: ignore[arg-type]
    client.counter("a", per="year")  # type: ignore[arg-type]
    client.counter("a").add(1.5)  # type: ignore[arg-type]
    client.counter("a").labels(code=None)  # type: ignore[arg-type]
    client.budget("a").settle(3)  # type: ignore[attr-defined]
    client.debug_state()  # type: ignore[attr-defined]
    client.top("a", share="2%")  # type: ignore[arg-type]
    assert client.answer("a").state == "exakt"  # type: ignore[comparison-overlap]
