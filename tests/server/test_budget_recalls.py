"""Who is waited for, and who is not, when the units of a budget are needed elsewhere: with real processes that stop."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.service import Server, until
from support.taker import LIMIT, RULE, StartTaker, usage

pytestmark = pytest.mark.slow


@pytest.fixture
def without_timeouts(tmp_path: Path) -> Iterator[Server]:
    """A coordinator that waits for stopped processes longer than any test, with a budget."""
    with Server(tmp_path, "--silent-after", "1h") as server:
        server.reader.request("POST", "/api/v1/budgets", RULE)
        yield server


def test_site_that_does_not_answer_a_recall_is_charged_until_it_is_back(tokens: Server, start: StartTaker) -> None:
    first, second = start(tokens, "first"), start(tokens, "second")
    assert first.take(30) == "allowed"
    until(lambda: first.take(1) and first.remaining, "a share that is not spent")
    granted = first.taken + first.remaining
    first.process.send_signal(signal.SIGSTOP)
    assert second.take_all() == "exhausted"
    assert second.taken == LIMIT - granted
    first.process.send_signal(signal.SIGCONT)
    until(lambda: second.take(1, wait=1) == "allowed", "units that the site has returned")
    assert second.take_all() == first.take(1) == "exhausted"
    assert first.taken + second.taken == LIMIT


def test_stopped_site_that_was_not_lent_units_holds_up_no_request(without_timeouts: Server, start: StartTaker) -> None:
    first, second = start(without_timeouts, "first"), start(without_timeouts, "second")
    assert first.take(900) == "allowed"  # more than a share
    first.process.send_signal(signal.SIGSTOP)
    assert second.take_all() == "exhausted"
    assert second.taken == LIMIT - 900


def test_requests_in_line_wait_for_a_stopped_site_and_sites_that_refuse_are_told_of_units_meanwhile(
    without_timeouts: Server, start: StartTaker
) -> None:
    first, second, third = (start(without_timeouts, name) for name in ("first", "second", "third"))
    assert first.take(30) == "allowed"
    assert third.take(980) == "exhausted"
    until(lambda: first.take(1) and first.remaining > 50, "a share")
    first.process.send_signal(signal.SIGSTOP)
    until(lambda: second.take(900, wait=0.1) == "starved", "its place in line")
    assert third.take(980, wait=0.1) == "exhausted"
    without_timeouts.reader.request("PATCH", "/api/v1/budgets/tokens", {"limit": 2 * LIMIT})
    until(lambda: third.take(980, wait=0.1) == "starved", "the end of the refusal")
    first.process.send_signal(signal.SIGCONT)
    until(lambda: second.take(900, wait=1) == "allowed", "the units that were recalled")
    until(lambda: third.take(980, wait=1) == "allowed", "its turn")
    assert first.take_all() == "exhausted"
    assert first.taken + second.taken + third.taken == 2 * LIMIT


def test_lowered_limit_recalls_what_sites_have_not_spent(tokens: Server, start: StartTaker) -> None:
    first, second = start(tokens, "first"), start(tokens, "second")
    assert first.take(30) == "allowed"
    tokens.reader.request("PATCH", "/api/v1/budgets/tokens", {"limit": 100})
    assert (second.take(71), second.take(70)) == ("exhausted", "allowed")
    assert (second.take(1), first.take(1)) == ("exhausted", "exhausted")
    assert usage(tokens)["used_upper"] == 100


def test_reset_forgives_only_what_the_sites_that_answer_have_spent(tokens: Server, start: StartTaker) -> None:
    first, second = start(tokens, "first"), start(tokens, "second")
    assert first.take(900) == "allowed"
    assert second.take(50) == "allowed"
    first.process.send_signal(signal.SIGSTOP)
    tokens.reader.request("POST", "/api/v1/budgets/tokens/reset")
    assert (second.take(101), second.take(100), second.take(1)) == ("exhausted", "allowed", "exhausted")
    first.process.send_signal(signal.SIGCONT)
    assert first.take(1) == "exhausted"
    tokens.reader.request("POST", "/api/v1/budgets/tokens/reset")
    until(lambda: usage(tokens)["used_upper"] == 0, "the answers of both")
    until(lambda: second.take(LIMIT) == "allowed", "the end of the refusal")
    assert first.take(1) == "exhausted"
