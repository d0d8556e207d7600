"""Requests of the race for limits depend on their seed only, are in time order and offer what they should."""

from collections import Counter

import pytest

from race.limits.workloads import OFFERED, OVERLOAD, SECONDS, WORKLOADS

LIMIT = 1000


@pytest.mark.parametrize("name", WORKLOADS)
def test_limit_workload_requests_are_in_order_and_at_known_sites(name: str) -> None:
    workload = WORKLOADS[name](7, LIMIT, 5)
    requests = workload.requests
    assert requests == WORKLOADS[name](7, LIMIT, 5).requests
    assert requests != WORKLOADS[name](7, LIMIT, 6).requests
    assert requests == sorted(requests)
    assert [request.number for request in requests] == list(range(len(requests)))
    assert all(0 <= request.time <= SECONDS and 0 <= request.site < 7 for request in requests)
    assert workload.name == name


@pytest.mark.parametrize(("name", "offered"), [("steady", OFFERED), ("hot", OFFERED), ("overload", OVERLOAD)])
def test_units_offered(name: str, offered: float) -> None:
    assert sum(request.units for request in WORKLOADS[name](3, LIMIT, 1).requests) == offered * LIMIT


def test_hot_site_gets_most_requests_and_moves() -> None:
    hot = Counter(request.site for request in WORKLOADS["hot"](5, LIMIT, 1).requests)
    assert hot[0] > 0.85 * hot.total()
    moving = WORKLOADS["moving"](5, LIMIT, 1).requests
    halves = Counter((int(2 * request.time), request.site) for request in moving)
    assert {site for (half, site), number in halves.items() if number > 0.5 * len(moving) / 10} == set(range(5))
    assert len([number for number in halves.values() if number > 0.5 * len(moving) / 10]) == 10


def test_holds_use_less_than_they_hold_and_end_later() -> None:
    workload = WORKLOADS["holds"](3, LIMIT, 1)
    for request in workload.requests:
        assert 0 <= request.used < request.units <= LIMIT
        assert request.until is not None
        assert request.time < request.until <= workload.end
