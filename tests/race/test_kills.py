"""The figure of the README, and one real minute of the run that measures it."""

from xml.etree import ElementTree

import pytest

from race.kills.apps import LIMIT
from race.kills.command import FIGURE, contestants, measured
from race.kills.figure import finding, picture
from race.kills.play import MINUTES, PER_MINUTE, REPLICAS, SERVER_KILLED_IN, Minute, Result, play


def test_figure_shows_what_was_measured() -> None:
    results = measured()
    assert FIGURE.read_text(encoding="utf-8") == picture(results)
    assert [result.contestant for result in results] == ["Redis", "Redis, AOF always", "Countless"]
    for result in results:
        offered = [each.admitted + each.refused + each.failed for each in result.minutes]
        assert offered == [REPLICAS * PER_MINUTE] * MINUTES
    redis, *others = results
    assert redis.minutes[SERVER_KILLED_IN - 1].admitted > LIMIT
    assert all(minute.admitted <= LIMIT for result in others for minute in result.minutes)


def test_minute_above_the_limit_is_marked() -> None:
    result = Result("Redis", [Minute(LIMIT, 5, 0), Minute(LIMIT + 1, 5, 3)])
    figure = picture([result])
    ElementTree.fromstring(figure)  # noqa: S314
    assert figure.count('class="over"') == 1
    assert figure.count('class="failed"') == 1
    assert finding([result]).endswith(f"Redis at most {LIMIT + 1}.")


@pytest.mark.soak
def test_every_contestant_keeps_the_limit_in_a_minute_without_kills() -> None:
    with contestants() as all_of_them:
        for result in play(all_of_them, minutes=1):
            assert result.minutes[0].admitted == LIMIT
