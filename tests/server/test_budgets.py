"""Budgets of a real coordinator, spent by real clients over WebSocket."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import countless
from countless.client.client import Client
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.messages import BudgetId
from countless.errors import InvalidParameter, LimitExceeded, Starved, UnknownBudget, Unreachable
from countless.wire.budgets import BudgetLeave
from support.service import TIMEOUT_S, Server, python, until

pytestmark = pytest.mark.slow

ALLOWED, EXHAUSTED = Decision(Reason.ALLOWED), Decision(Reason.EXHAUSTED)


@pytest.fixture
def served(server: Server) -> Iterator[Server]:
    """Without budgets before and after a test."""
    yield server
    for budget in server.reader.request("GET", "/api/v1/budgets")["budgets"]:
        server.reader.request("DELETE", f"/api/v1/budgets/{budget['name']}")


def create(server: Server, limit: int, slack: float = 0.0) -> None:
    server.reader.request("POST", "/api/v1/budgets", {"name": "tokens", "limit": limit, "slack": slack})


def used(server: Server) -> tuple[int, int, int]:
    status = server.reader.request("GET", "/api/v1/budgets/tokens")
    return status["used_lower"], status["used_upper"], status["leaked"]


def test_units_are_taken_until_the_budget_is_exhausted_and_handed_in_at_the_end(served: Server) -> None:
    create(served, 100)
    with countless.connect(served.url, site="a") as first, countless.connect(served.url, site="b") as second:
        assert first.budget("tokens").take(60, wait=TIMEOUT_S) == ALLOWED
        assert second.budget("tokens").take(30, wait=TIMEOUT_S) == ALLOWED
        assert first.budget("tokens").take(11, wait=TIMEOUT_S) == EXHAUSTED
        assert first.budget("tokens").take(10, wait=TIMEOUT_S) == ALLOWED
        assert second.budget("tokens").take(1, wait=TIMEOUT_S) == EXHAUSTED
    assert used(served) == (100, 100, 0)


def test_take_within_the_limit_of_the_process_needs_no_coordinator(served: Server) -> None:
    create(served, 1000)
    with countless.connect(served.url, site="a") as client:
        budget = client.budget("tokens")
        assert budget.take(100, wait=TIMEOUT_S)
        room = until(lambda: budget.remaining, "a share")
        served.kill()
        until(lambda: not client.connected, "the loss of the connection")
        assert all(budget.take(1, wait=0) for _ in range(room))
        assert budget.take(1, wait=0).reason is Reason.UNREACHABLE
        with pytest.raises(Unreachable):
            budget.reserve(1, wait=0)
        served.start()
        assert budget.take(1, wait=TIMEOUT_S) == ALLOWED
    assert used(served) == (101 + room, 101 + room, 0)


def test_hold_settles_what_was_used_and_an_exception_settles_nothing(served: Server) -> None:
    create(served, 100)
    with countless.connect(served.url, site="a") as client:
        budget = client.budget("tokens")
        with pytest.raises(RuntimeError), budget.reserve(70, wait=TIMEOUT_S):
            raise RuntimeError
        with budget.reserve(80, wait=TIMEOUT_S) as hold:
            with pytest.raises(LimitExceeded):
                budget.reserve(21, wait=TIMEOUT_S)
            hold.settle(30)
        # It was refused 21 units, until the coordinator knows that units are back.
        assert until(lambda: budget.take(70, wait=TIMEOUT_S), "the units that were held") == ALLOWED
    assert used(served) == (100, 100, 0)


async def test_async_requests_of_two_clients_spend_the_budget_exactly(served: Server) -> None:
    create(served, 500)
    with countless.connect(served.url, site="a") as first, countless.connect(served.url, site="b") as second:

        async def spend(client: Client) -> int:
            budget, taken = client.budget("tokens"), 0
            while taken <= 500 and await budget.atake(1, wait=TIMEOUT_S):
                taken += 1
            return taken

        assert sum(await asyncio.gather(*[spend(client) for client in (first, second) for _ in range(20)])) == 500
        with pytest.raises(LimitExceeded):
            async with first.budget("tokens").areserve(1):
                pass


def test_slots_are_passed_from_one_client_to_another(served: Server) -> None:
    create(served, 3)
    with countless.connect(served.url, site="a") as first, countless.connect(served.url, site="b") as second:
        held = first.budget("tokens").acquire(3, wait=TIMEOUT_S)
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(second.budget("tokens").acquire, 2, TIMEOUT_S)
            until(lambda: second._budget_part("tokens").active, "the request")
            held.release()
            waiting.result().release()
    assert used(served) == (0, 0, 0)


def test_request_without_an_answer_in_time_is_starved(served: Server) -> None:
    create(served, 100)
    with countless.connect(served.url, site="a") as client:
        client.counter("hits").inc()
        until(lambda: client.connected, "a connection")
        budget = client.budget("tokens")
        with client._lock:  # the answer cannot be taken in
            assert budget.take(1, wait=0).reason is Reason.STARVED
            with pytest.raises(Starved):
                budget.reserve(2, wait=0)


def test_unknown_budgets_and_wrong_amounts_are_errors(served: Server) -> None:
    with countless.connect(served.url, site="a") as client:
        with pytest.raises(UnknownBudget, match="there is no budget 'tokens'"):
            client.budget("tokens").take(1, wait=TIMEOUT_S)
        create(served, 100)
        for n in (0, -1, 1.5, 2**62 + 1):
            with pytest.raises(InvalidParameter, match="n must be an integer from 1 to 2"):
                client.budget("tokens").take(n)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameter, match="wait must be"):
            client.budget("tokens").take(1, wait=-1)
        with pytest.raises(InvalidParameter, match="budget must be"):
            client.budget("")
        assert client.budget("tokens").take(100, wait=TIMEOUT_S) == ALLOWED
        served.reader.request("DELETE", "/api/v1/budgets/tokens")
        create(served, 50)
        assert until(lambda: client.budget("tokens").take(50, wait=0), "the new budget") == ALLOWED
    assert used(served) == (50, 50, 0)


def test_raised_limit_is_granted_to_a_site_that_was_refused(served: Server) -> None:
    create(served, 10)
    with countless.connect(served.url, site="a") as client:
        budget = client.budget("tokens")
        assert budget.take(10, wait=TIMEOUT_S) == ALLOWED
        assert budget.take(1, wait=TIMEOUT_S) == EXHAUSTED
        served.reader.request("PATCH", "/api/v1/budgets/tokens", {"limit": 15})
        assert until(lambda: budget.take(5, wait=TIMEOUT_S), "the raised limit") == ALLOWED


def test_forked_child_has_nothing_of_its_parent_and_asks_for_itself(served: Server) -> None:
    create(served, 100)
    code = """if True:
    import countless, os
    client = countless.connect(site="a")
    budget = client.budget("tokens")
    assert budget.take(40, wait=90)
    child = os.fork()
    assert budget.take(10, wait=90)
    assert client.close()
    if child:
        assert os.waitpid(child, 0)[1] == 0
    """
    with python(code, served.url) as process:
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert used(served) == (60, 60, 0)


def test_renewed_budget_hands_in_what_the_retired_incarnation_spent(served: Server) -> None:
    create(served, 100)
    with countless.connect(served.url, site="a") as client:
        budget = client._budget_part("tokens")
        assert budget.take(100, wait=TIMEOUT_S)
        retired = client._site_id
        with client._lock:
            budget.renew(retired._replace(incarnation=retired.incarnation + 1))
        assert budget.hand_ins() == [BudgetLeave(BudgetId("tokens"), retired.incarnation, 100)]
    assert used(served) == (100, 100, 0)
