"""Counters that operators create, configure and delete while sites count them."""

import pytest

from countless.core.messages import Snapshot, StartRound
from countless.errors import InvalidParameter
from countless.server.settings import Config
from countless.wire.frames import Join
from support.site_server import site_server


async def test_alpha_may_grow_but_not_shrink() -> None:
    async with site_server() as harness:
        session, connection = await harness.connect("a")
        await harness.send(session, connection, Join("hits", 0, 20))
        with pytest.raises(InvalidParameter, match=r"at least 0\.01"):
            harness.server.configure("hits", Config(alpha=0.001))
        harness.server.configure("hits", Config(alpha=0.1, scheme="deterministic"))
        await harness.server.flush()
        start_round = next(item for item in connection.received if isinstance(item, StartRound))
        await harness.send(session, connection, Snapshot("hits", start_round.round, 22))
        answer = harness.server.counter("hits").published_answer
        assert answer.alpha == 0.1
        assert answer.lower <= 22 <= answer.upper


async def test_same_config_starts_no_round() -> None:
    async with site_server() as harness:
        harness.server.create("hits", Config())
        counter = harness.server.counter("hits")
        harness.server.configure("hits", Config())
        assert harness.server.counter("hits") is counter


@pytest.mark.parametrize(
    ("name", "config", "wrong"),
    [
        ("", Config(), "counter"),
        ("line\nfeed", Config(), "counter"),
        ("hits", Config(), "not taken"),
        ("new", Config(alpha=0.9), "alpha"),
    ],
)
async def test_invalid_counter_is_refused_and_changes_nothing(name: str, config: Config, wrong: str) -> None:
    async with site_server() as harness:
        harness.server.create("hits", Config())
        with pytest.raises(InvalidParameter, match=wrong):
            harness.server.create(name, config)
        assert list(harness.server.counters) == ["hits"]
