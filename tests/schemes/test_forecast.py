"""What deterministic sites will cost, and how a forecast that was wrong is corrected."""

from collections import Counter

import pytest

from countless.core.estimator import RoundContext
from countless.core.ledger import Entry
from countless.core.messages import SiteId
from countless.schemes.forecast import MOST_SURPRISE, WINDOW, Watched, deterministic_cost, sites_beyond, speaking_sites


def context(total: int, messages: int, sites: int = 10) -> RoundContext:
    counts = [total // sites] * sites
    return RoundContext(1, sites, total, 0.1, 0.05, counts, messages=messages)


def test_sites_that_report_every_event_cost_one_message_each() -> None:
    assert deterministic_cost(Counter({1: 10}), 0.1, 20) == pytest.approx(20)


def test_later_a_site_speaks_once_in_each_growth_by_its_reach() -> None:
    """From 1,000 to e times that: ln((1+alpha)/(1-alpha)) is 0.2007, and 2 alpha/(1-alpha) is what the model has."""
    cost = deterministic_cost(Counter({1_000: 10}), 0.1, 10 * 1_000 * 1.71828)
    assert cost == pytest.approx(10 / 0.2222, rel=0.01)


def test_only_sites_with_a_share_will_speak() -> None:
    assert speaking_sites(Counter({1_000: 1, 0: 9}), 100) < 2
    assert speaking_sites(Counter({100: 10}), 1_000) == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize(
    ("came", "correction"),
    [(30, 1.0), (36, 1.2), (120, MOST_SURPRISE), (7.5, 0.5)],
    ids=["right", "more", "most", "less"],
)
def test_a_forecast_is_corrected_by_what_came(came: float, correction: float) -> None:
    """Thirty events at sites that report every one; then so many messages came."""
    watched = Watched(0.1, reconsider_at=50)
    watched.look(context(10, 10), Counter([1] * 10))
    counts = Counter([4] * 10)
    watched.look(context(40, 10 + round(came * 4) // 4), counts)
    window = (WINDOW - 1) * 40
    expected = min(window, correction * deterministic_cost(counts, 0.1, window))
    assert watched.forecast(context(40, 0), counts, window) == pytest.approx(expected, rel=0.05)


def test_who_is_surprised_expects_as_much_again_in_each_window() -> None:
    watched = Watched(0.1, reconsider_at=50)
    watched.look(context(100, 100), Counter([10] * 10))
    watched.look(context(200, 200), Counter([20] * 10))
    counts, surprise = Counter([20] * 10), watched.surprise
    watched.surprise = 1.1
    for windows in (1, 2, 3):
        events = (WINDOW**windows - 1) * 200
        plain = deterministic_cost(counts, 0.1, events)
        assert watched.forecast(context(200, 0), counts, events) == pytest.approx(1.1**windows * plain)
    assert surprise > 1


def test_by_which_power_of_the_total_the_messages_grow() -> None:
    watched = Watched(0.1, reconsider_at=50)
    watched.look(context(100, 100), Counter([10] * 10))
    watched.look(context(400, 200), Counter([40] * 10))
    assert watched.power == pytest.approx(0.5)
    watched.look(context(800, 800), Counter([80] * 10))
    assert watched.power == 1.0  # never more than a message for each event


def test_sites_that_will_have_counted_so_much() -> None:
    counts = Counter({9: 2, 1: 5, 0: 5})  # shares of 10, 2 and 1, of 35
    assert [sites_beyond(counts, 35, limit) for limit in (0.5, 1.0, 2.9, 3.0, 18.9, 19.0)] == [12, 7, 7, 2, 2, 0]


def test_newcomers_are_those_of_the_last_look() -> None:
    watched = Watched(0.1, reconsider_at=50)
    for name in range(3):
        watched.join(Entry(SiteId(name), 0, name))
    watched.look(context(100, 100), Counter([10] * 10))
    assert watched.newcomers == 0  # they may be the fleet, all starting together
    watched.join(Entry(SiteId(3), 0, 3))
    watched.look(context(110, 110), Counter([11] * 10))
    assert watched.newcomers == 0  # too early to say
    watched.look(context(130, 130), Counter([13] * 10))
    assert watched.newcomers == 1


def test_a_time_without_sites_is_no_surprise() -> None:
    watched = Watched(0.1, reconsider_at=50)
    watched.look(context(100, 100), Counter())
    watched.look(context(200, 200), Counter([20] * 10))
    assert watched.surprise == 1.0
