"""The bound on the messages of a family, beside traffic that is costly for it."""

from collections.abc import Callable, Iterator

import pytest

from countless.inprocess.family import Family
from countless.planning.families import most_messages

SITES, EPSILON, EVENTS = 8, 0.05, 20_000


def one_label() -> Iterator[tuple[int, str]]:
    return ((event % SITES, "x") for event in range(EVENTS))


def new_labels() -> Iterator[tuple[int, str]]:
    return ((event % SITES, f"label-{event}") for event in range(EVENTS))


def labels_in_turn() -> Iterator[tuple[int, str]]:
    """Each label grows to its report only after all others have used up their share of the total's step."""
    return ((event % SITES, f"label-{event // SITES % 40}") for event in range(EVENTS))


def one_site() -> Iterator[tuple[int, str]]:
    return ((0, f"label-{event % 3}") for event in range(EVENTS))


@pytest.mark.parametrize("stream", [one_label, new_labels, labels_in_turn, one_site])
def test_messages_stay_below_the_bound_at_every_moment(stream: Callable[[], Iterator[tuple[int, str]]]) -> None:
    family = Family(SITES, EPSILON)
    for total, (site, label) in enumerate(stream(), start=1):
        family.site(site).add(label)
        if total % 50 == 0:
            assert family.messages.total <= most_messages(SITES, EPSILON, total)
    assert family.messages.total >= most_messages(SITES, EPSILON, EVENTS) / 5
