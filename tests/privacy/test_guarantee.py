"""Guarantees as values: what composes, and what is refused."""

from itertools import product
from math import exp, log, prod

import pytest

from countless.errors import InvalidParameter, InvariantBroken
from countless.privacy.guarantee import LeakMap, PartialDPGuarantee

VARYING = LeakMap("what it says", frozenset)


def test_ordinary_privacy_leaks_nothing() -> None:
    guarantee = PartialDPGuarantee(0.5, 1e-6)
    assert guarantee.leaked("any transcript") == frozenset()
    assert not guarantee.pure
    assert PartialDPGuarantee(0.5).pure


def test_sequential_composition_adds_and_unites_leaks() -> None:
    both = PartialDPGuarantee(0.1, 1e-6, 3, VARYING).compose_sequential(PartialDPGuarantee(0.3, 1e-7, 2, VARYING))
    assert both.epsilon == pytest.approx(0.4)
    assert both.delta == pytest.approx(1.1e-6)
    assert both.kappa == 5
    assert both.leaked(((1, 2), (2, 9))) == {1, 2, 9}


def test_overlapping_fixed_leaks_are_counted_once() -> None:
    one = PartialDPGuarantee(0.1, 0.0, 3, LeakMap.always(frozenset({1, 2, 3})))
    two = PartialDPGuarantee(0.1, 0.0, 2, LeakMap.always(frozenset({3, 4})))
    assert one.compose_sequential(two).kappa == 4
    assert one.compose_n(5).kappa == 3


def test_concurrent_composition_is_refused_unless_pure() -> None:
    pure = PartialDPGuarantee(0.1, 0.0, 1, VARYING)
    assert pure.compose_concurrent(pure).kappa == 2
    with pytest.raises(InvalidParameter, match="pure"):
        pure.compose_concurrent(PartialDPGuarantee(0.1, 1e-9))


def test_parallel_composition_takes_the_larger_epsilon_and_both_leaks() -> None:
    both = PartialDPGuarantee(0.1, 1e-6, 3, VARYING).compose_parallel(PartialDPGuarantee(0.3, 1e-7, 2, VARYING))
    assert (both.epsilon, both.delta, both.kappa) == (0.3, 1e-6, 5)


def test_n_fold_composition() -> None:
    ten = PartialDPGuarantee(0.1, 1e-6, 3, VARYING).compose_n(10)
    assert ten.epsilon == pytest.approx(1.0)
    assert ten.kappa == 30
    assert ten.leaked([(1,), (2,), (1,)]) == {1, 2}
    with pytest.raises(InvalidParameter, match="method"):
        PartialDPGuarantee(0.1).compose_n(10, method="advanced")
    with pytest.raises(InvalidParameter, match="times"):
        PartialDPGuarantee(0.1, 0.2).compose_n(5)
    with pytest.raises(InvalidParameter, match="times"):
        PartialDPGuarantee(0.1).compose_n(0)


def test_advanced_composition_has_a_counterexample() -> None:
    """All laws of n runs of "a" if x = 0, else "a" with probability e^-epsilon and "leak" otherwise."""
    epsilon, runs = 0.3, 6
    laws = {0: {"a": 1.0}, 1: {"a": exp(-epsilon), "leak": 1 - exp(-epsilon)}}
    one = PartialDPGuarantee(epsilon, 0.0, 1, LeakMap("x", lambda answer: frozenset("x" if "leak" in answer else "")))
    worst = 0.0
    for transcript in product(("a", "leak"), repeat=runs):
        if not one.compose_n(runs).leaked(transcript):
            likelihoods = [prod(law.get(answer, 0.0) for answer in transcript) for law in laws.values()]
            worst = max(worst, abs(log(likelihoods[0] / likelihoods[1])))
    assert worst == pytest.approx(one.compose_n(runs).epsilon) == pytest.approx(runs * epsilon)
    # The event has probability 1 against e^(-n epsilon): no delta below 1 helps.
    for delta in (1e-6, 0.1, 0.9):
        assert log((1 - delta) / exp(-worst)) == pytest.approx(runs * epsilon + log(1 - delta))


def test_vacuous_composition_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="delta"):
        PartialDPGuarantee(0.1, 0.5).compose_sequential(PartialDPGuarantee(0.1, 0.5))


def test_group_privacy() -> None:
    assert PartialDPGuarantee(0.5).group(3) == (1.5, 0.0)
    epsilon, delta = PartialDPGuarantee(0.0, 0.01).group(4)
    assert epsilon == 0.0
    assert delta == pytest.approx(0.04)
    assert PartialDPGuarantee(1.0, 0.01).group(2)[1] == pytest.approx(0.01 * (1 + 2.718281828))
    with pytest.raises(InvalidParameter, match="size"):
        PartialDPGuarantee(1.0).group(0)


def test_transcript_with_more_leaks_than_kappa_raises() -> None:
    with pytest.raises(InvariantBroken, match="kappa is 2"):
        PartialDPGuarantee(0.1, 0.0, 2, VARYING).leaked((1, 2, 3))


def test_postprocessing_must_cover_every_leak() -> None:
    source = PartialDPGuarantee(0.1, 0.0, 2, VARYING)
    honest = source.postprocess(len, LeakMap("all", lambda _: frozenset(range(10))), 10)
    honest.check((3, 4))
    without_latest_leak = source.postprocess(len, LeakMap("none", lambda _: frozenset()), 0)
    with pytest.raises(InvariantBroken, match="misses 2"):
        without_latest_leak.check((3, 4))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("epsilon", (-0.1, 0.0, 0)),
        ("epsilon", (float("inf"), 0.0, 0)),
        ("delta", (0.1, 1.0, 0)),
        ("delta", (0.1, -1e-9, 0)),
        ("kappa", (0.1, 0.0, -1)),
        ("kappa", (0.1, 0.0, 1.5)),
    ],
)
def test_invalid_guarantees_are_refused(field: str, values: tuple[float, float, int]) -> None:
    with pytest.raises(InvalidParameter, match=field):
        PartialDPGuarantee(*values)


def test_kappa_must_cover_fixed_leaks() -> None:
    with pytest.raises(InvalidParameter, match="kappa"):
        PartialDPGuarantee(0.1, 0.0, 1, LeakMap.always(frozenset({1, 2})))
