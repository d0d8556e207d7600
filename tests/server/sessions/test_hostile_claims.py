"""What a site claims does not keep other sites from counting, nor readers from reading."""

from pathlib import Path
from sys import float_info

import pytest

from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.family.distribution import MIN_VALUE, Buckets, Ranks
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.parameters import MAX_ROUND
from countless.errors import ProtocolError
from countless.server.storage.sqlite_store import SqliteStore
from countless.wire.families import FamilyJoin, FamilyLabels, FamilyLeave, FamilyReport, FamilySteps
from countless.wire.frames import MAX_NUMBER, decode_down, encode_frames
from support.site_server import site_server
from support.spender import Spender, first_ask


def join(round: int = 0, step: int = 1, epsilon: float = 0.01) -> FamilyJoin:
    return FamilyJoin("calls", LABELS, epsilon, 0.0, round, step, step, 0, 0)


@pytest.mark.parametrize("round", [MAX_ROUND + 1, 1 << 63, MAX_NUMBER])
async def test_join_of_an_absurd_round_is_refused_and_changes_nothing(round: int) -> None:
    async with site_server() as harness:
        victim, hostile = await harness.connect("victim"), await harness.connect("hostile")
        await harness.send(*victim, join())
        victim[1].received.clear()
        with pytest.raises(ProtocolError, match="too far ahead"):
            await harness.send(*hostile, join(round))
        await harness.server.flush()
        assert victim[1].received == []
        assert harness.server.families.get("calls").coordinator.site_ids == [victim[0].site_id]


async def test_round_after_the_highest_that_is_believed_is_sent_saved_and_loaded(tmp_path: Path) -> None:
    for _ in range(3):
        store = SqliteStore(tmp_path / "state.db")
        async with site_server(store) as harness:
            victim, hostile = await harness.connect("victim"), await harness.connect("hostile")
            await harness.send(*victim, join())
            present = harness.server.families.get("calls").coordinator.round
            await harness.send(*hostile, join(max(MAX_ROUND, present + 1)))
            (frame,) = encode_frames(victim[1].received)
            told = [item for item in decode_down(frame) if isinstance(item, FamilySteps)]
            assert told[-1].round == max(MAX_ROUND, present + 1) + 1
        store.close()


async def test_second_join_on_a_connection_cannot_make_the_coordinator_tell_all_members() -> None:
    for second in (join(round=1), join(step=2), join(epsilon=0.001)):
        async with site_server() as harness:
            hostile = await harness.connect("hostile")
            await harness.send(*hostile, join())
            await harness.send(*hostile, join())  # as after a lost answer
            with pytest.raises(ProtocolError, match="joined again"):
                await harness.send(*hostile, second)


async def test_steps_fit_in_a_message_whatever_sites_claim_to_have_counted() -> None:
    async with site_server() as harness:
        for incarnation in range(1, 5):
            hostile = await harness.connect("hostile", incarnation)
            await harness.send(*hostile, join(epsilon=0.4))
            round = harness.server.families.get("calls").coordinator.round
            report = FamilyReport("calls", round, MAX_NUMBER, (0, MAX_NUMBER))
            await harness.send(*hostile, report, FamilyLeave("calls", round, 1, 1, MAX_NUMBER, MAX_NUMBER))
            harness.server.on_disconnect(*hostile)
        victim = await harness.connect("victim")
        received = await harness.send(*victim, join(epsilon=0.4))
        assert [item for frame in encode_frames(received) for item in decode_down(frame)] == received
        assert isinstance(received[-1], FamilySteps)
        assert received[-1].total_step > 1 << 240
        harness.server.families.get("calls").coordinator.check()


async def test_absurd_totals_of_an_ask_take_nothing_from_other_budgets_and_end_with_a_reset() -> None:
    async with site_server() as harness:
        for name in ("tokens", "others"):
            harness.server.budgets.create(name, BudgetRule(10, slack=0))
        hostile, victim = await harness.connect("hostile"), await Spender(harness, "victim").connect()
        claim = first_ask("tokens", 0)._replace(seq=MAX_NUMBER, granted=MAX_NUMBER, spent=MAX_NUMBER)
        await harness.send(*hostile, claim)
        assert await victim.take(1) == "exhausted"
        assert await victim.take(10, BudgetId("others")) == "allowed"
        harness.server.budgets.reset("tokens")
        await victim.exchange()
        assert await victim.take(10) == "allowed"


@pytest.mark.parametrize("label", ["99999999", "-99999999", "007", "-0", "٣"])
async def test_bucket_that_no_value_has_is_refused(label: str) -> None:
    async with site_server() as harness:
        hostile = await harness.connect("hostile")
        await harness.send(*hostile, FamilyJoin("ms", VALUES, 0.1, 0.01, 0, 1, 1, 0, 0))
        with pytest.raises(ProtocolError, match="not a bucket"):
            await harness.send(*hostile, FamilyLabels("ms", (label,)))


@pytest.mark.parametrize("accuracy", [0.0001, 0.01, 0.5])
def test_every_value_has_a_bucket_with_finite_edges(accuracy: float) -> None:
    buckets = Buckets(accuracy)
    for value in (0.0, MIN_VALUE, 1.0, 1e300, float_info.max):
        label = buckets.label(value)
        assert FamilyRule(VALUES, 0.1, accuracy).allows(label)
        quantile = Ranks({label: 1}, 0, buckets).quantile(0.5)
        assert quantile is not None
        assert quantile.lower <= value <= quantile.upper <= float_info.max
        assert quantile.lower <= quantile.estimate <= quantile.upper
