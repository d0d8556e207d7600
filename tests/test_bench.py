"""Comparisons of two checkouts."""

from bench.against import comparison


def test_comparison_has_the_median_of_what_both_measure() -> None:
    runs = [({"a": there, "old": 1.0}, {"a": here, "new": 1.0}) for there, here in ((2.0, 3.0), (4.0, 9.0), (4.0, 6.0))]
    title, line = comparison("0123456789abcdef", runs).splitlines()
    assert title.split() == ["median", "of", "3", "0123456789ab", "here", "ratio"]
    assert line.split() == ["a", "4.00", "6.00", "1.50"]
