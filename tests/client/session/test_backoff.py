"""Pauses double up to a limit, with jitter."""

from countless.client.session.reconnect import FIRST_S, MAX_S, MAX_WHILE_WAITED_FOR_S, Backoff
from countless.randomness import SeededRandom, SystemRandom


def test_pauses_double_up_to_a_limit_with_jitter_on_both_sides() -> None:
    backoff = Backoff(SeededRandom(1))
    middles = [min(FIRST_S * 2**n, MAX_S) for n in range(12)]
    pauses = [backoff.next() for _ in middles]
    assert all(0.5 * middle <= pause < 1.5 * middle for pause, middle in zip(pauses, middles, strict=True))
    assert middles[-1] == MAX_S
    backoff.reset()
    assert backoff.next() < 1.5 * FIRST_S


def test_no_pause_is_longer_than_five_seconds() -> None:
    class Largest(SeededRandom):
        def random(self) -> float:
            return 1.0

    backoff = Backoff(Largest(1))
    assert max(backoff.next() for _ in range(20)) <= 5.0


def test_pauses_are_short_while_the_program_waits() -> None:
    backoff = Backoff(SeededRandom(1))
    assert max(backoff.next(waited_for=True) for _ in range(12)) < 1.5 * MAX_WHILE_WAITED_FOR_S
    assert backoff.next() >= 0.5 * MAX_S


def test_two_clients_pause_for_different_times() -> None:
    assert Backoff(SystemRandom()).next() != Backoff(SystemRandom()).next()
