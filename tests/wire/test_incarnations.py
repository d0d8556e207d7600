"""The numbers of incarnations."""

from hypothesis import given
from hypothesis import strategies as st

from countless.wire.incarnations import MAX_INCARNATION, MAX_RANDOM_S, first_of, second_of, successor_of

incarnations = st.integers(0, MAX_INCARNATION)
seconds = st.integers(0, 1 << 32)


@given(incarnations, seconds)
def test_successor_is_at_least_what_the_coordinator_asks_for_and_the_same_for_all(
    incarnation: int, second: int
) -> None:
    successor = successor_of(incarnation, first_of(second))
    assert first_of(second) <= successor <= MAX_INCARNATION
    assert successor == successor_of(incarnation, first_of(second))
    if second_of(incarnation) >= second:
        assert second_of(successor) == second_of(incarnation)
    else:
        assert second <= second_of(successor) < second + MAX_RANDOM_S


def test_successors_of_incarnations_differ_and_do_not_return() -> None:
    chain = [first_of(1_700_000_000)]
    for _ in range(1_000):
        chain.append(successor_of(chain[-1]))
    assert len(set(chain)) == len(chain)
