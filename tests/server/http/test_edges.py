"""Totals at the beginnings of minutes, hours and days: their bounds are true, and few of them are kept."""

import pytest

from countless.core.periods.rolling import TotalRecord
from countless.server.http.history.series import BARS, LENGTHS_S, Edges

DAY_S = LENGTHS_S["day"]


def exact(moment: float, total: int) -> TotalRecord:
    return TotalRecord(moment, total, total, total, True)


def test_edge_is_between_what_was_known_before_and_after_it() -> None:
    edges = Edges()
    edges.add(exact(30.0, 5), exact(59.0, 7))
    assert list(edges) == []
    edges.add(exact(59.0, 7), TotalRecord(60.0, 9, 8, 10, False))
    assert list(edges) == [TotalRecord(60, 9, 7, 10, False)]


def test_coordinator_that_stood_still_over_an_hour_has_the_edge_of_the_hour() -> None:
    edges = Edges()
    edges.add(exact(3590.0, 5), exact(3730.0, 9))
    assert [(edge.time, edge.lower, edge.upper) for edge in edges] == [(3600, 5, 9), (3720, 5, 9)]


@pytest.mark.slow
def test_every_bar_begins_at_an_edge_that_is_kept() -> None:
    """Forty days, in steps of a minute."""
    edges, now = Edges(), 30.0
    while now < 40 * DAY_S + 7 * 3600 + 13 * 60:
        edges.add(exact(now, int(now)), exact(now + 60, int(now) + 60))
        now += 60
    kept = {edge.time for edge in edges}
    for per, length in LENGTHS_S.items():
        assert {now // length * length - length * ago for ago in range(BARS[per])} <= kept, per
    assert len(kept) == len(list(edges)) <= 180
    assert [edge.time for edge in edges] == sorted(kept)
    edges.shift(-3.0)
    assert {edge.time + 3.0 for edge in edges} == kept
