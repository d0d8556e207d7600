"""What happens to a rolling budget when things fail: with real processes. Its window is longer than any test.

Requests for more than a share are granted, not lent; then a process hands over what it took when it asks again.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.service import Server, until
from support.taker import LIMIT, RULE, StartTaker, usage

pytestmark = pytest.mark.slow


@pytest.fixture
def tokens(server: Server) -> Iterator[Server]:
    server.reader.request("POST", "/api/v1/budgets", {**RULE, "rolling": "1h"})
    yield server
    server.reader.request("DELETE", "/api/v1/budgets/tokens")


def test_process_that_handed_over_and_is_killed_is_charged_once(
    tokens: Server, start: StartTaker, tmp_path: Path
) -> None:
    first = start(tokens, "first", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    assert (first.take(900), first.take(50)) == ("allowed", "allowed")
    first.kill()
    second = start(tokens, "second", COUNTLESS_CLIENT_STATE_DIR=str(tmp_path))
    until(lambda: second.take(1) == "allowed", "the units that the killed process did not use")
    until(lambda: len(list(tmp_path.iterdir())) == 1, "the hand-in")
    assert (second.take(50), second.take(49), second.take(1)) == ("exhausted", "allowed", "exhausted")
    assert usage(tokens)["used_upper"] == LIMIT


def test_killed_coordinator_counts_on_what_was_handed_over(tokens: Server, start: StartTaker) -> None:
    first, second = start(tokens, "first"), start(tokens, "second")
    assert (first.take(900), first.take(50)) == ("allowed", "allowed")
    tokens.kill()
    tokens.start()
    assert (second.take(51), second.take(50)) == ("exhausted", "allowed")
    assert first.take(1) == "exhausted"


def test_wall_clocks_do_not_matter(tokens: Server, start: StartTaker) -> None:
    first = start(tokens, "first", CLOCK_IS_AHEAD="100000")
    second = start(tokens, "second", CLOCK_IS_AHEAD="-100000")
    assert (first.take(900), second.take(50), first.take(50)) == ("allowed", "allowed", "allowed")
    assert first.take(1) == second.take(1) == "exhausted"
