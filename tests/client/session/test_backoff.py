"""Pauses double up to a limit, and no two clients keep the same time."""

from countless.client.session.backoff import AWAITED, FIRST, LONGEST, Backoff
from countless.randomness import SeededRandom


def test_pauses_double_up_to_a_limit_with_jitter_on_both_sides() -> None:
    backoff = Backoff(SeededRandom(1))
    middles = [min(FIRST * 2**n, LONGEST) for n in range(12)]
    pauses = [backoff.next() for _ in middles]
    assert all(0.5 * middle <= pause < 1.5 * middle for pause, middle in zip(pauses, middles, strict=True))
    assert middles[-1] == LONGEST
    backoff.reset()
    assert backoff.next() < 1.5 * FIRST


def test_whoever_is_waited_for_does_not_sleep_long() -> None:
    backoff = Backoff(SeededRandom(1))
    assert max(backoff.next(awaited=True) for _ in range(12)) < 1.5 * AWAITED
    assert backoff.next() >= 0.5 * LONGEST


def test_two_clients_that_lost_the_same_coordinator_come_back_at_different_times() -> None:
    assert Backoff().next() != Backoff().next()
