"""The ledger keeps every count exactly once."""

import pytest

from countless.core.ledger import Entry, Ledger
from countless.core.messages import SiteId
from countless.core.site_states import Presence, RoundState, SiteEvent
from countless.errors import InvariantBroken, ProtocolError

ANNA, BERT = SiteId("anna"), SiteId("bert")


def departed(ledger: Ledger, site_id: SiteId, count: int) -> Entry:
    entry = ledger.add(site_id, count)
    ledger.apply(entry, SiteEvent.LEFT)
    return entry


def test_known_total_is_the_sum_of_all_counts() -> None:
    ledger = Ledger(departed=100)
    ledger.add(ANNA, 5)
    ledger.add(BERT, 7).reported = 9
    assert ledger.known_total == 114
    assert (len(ledger), ledger.present) == (2, 2)
    assert [(entry.site_id, entry.slot) for entry in ledger.values()] == [(ANNA, 0), (BERT, 1)]


def test_departed_site_keeps_its_slot_until_it_is_folded() -> None:
    ledger = Ledger()
    departed(ledger, ANNA, 5)
    assert (len(ledger), ledger.present, ledger.departed, ledger.known_total) == (1, 0, 0, 5)
    ledger.fold_departed()
    assert (len(ledger), ledger.present, ledger.departed, ledger.known_total) == (0, 0, 5, 5)
    assert ANNA not in ledger


def test_two_incarnations_of_a_site_are_two_entries() -> None:
    ledger = Ledger()
    departed(ledger, ANNA, 5)
    ledger.add(ANNA._replace(incarnation=1), 2)
    assert ledger.known_total == 7
    ledger.fold_departed()
    assert ledger.known_total == 7


def test_incarnation_is_added_once() -> None:
    ledger = Ledger()
    ledger.add(ANNA, 5)
    with pytest.raises(InvariantBroken, match="already"):
        ledger.add(ANNA, 6)
    assert ledger.known_total == 5


def test_discard_undoes_add() -> None:
    ledger = Ledger()
    ledger.discard(ledger.add(ANNA, 5))
    assert (len(ledger), ledger.present, ledger.known_total) == (0, 0, 0)


def test_unreachable_sites_are_listed_in_the_order_of_their_timeouts() -> None:
    ledger = Ledger()
    anna, bert = ledger.add(ANNA, 5), ledger.add(BERT, 7)
    for entry in (bert, anna, bert):
        ledger.apply(entry, SiteEvent.TIMED_OUT)
    assert list(ledger.unreachable) == [BERT, ANNA]
    ledger.apply(bert, SiteEvent.MESSAGE)
    assert list(ledger.unreachable) == [ANNA]
    ledger.apply(anna, SiteEvent.LEFT)
    assert (list(ledger.unreachable), ledger.present) == ([], 1)
    ledger.apply(anna, SiteEvent.MESSAGE)  # a late one
    assert (anna.presence, ledger.present) == (Presence.DEPARTED, 1)


def test_unknown_site_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match=r"'bert' \(incarnation 0\) has not joined"):
        Ledger()[BERT]


@pytest.mark.parametrize(
    ("state", "known_at_9", "known_at_10"),
    [
        (RoundState.CURRENT, True, False),
        (RoundState.TRIGGER_CHANGED, True, False),
        (RoundState.NOT_SENT, True, True),
        (RoundState.AWAITING_SNAPSHOT, False, False),
        (RoundState.MISSED_START, False, False),
        (RoundState.START_ASSUMED, False, False),
        (RoundState.START_ASSUMED_TRIGGER_CHANGED, False, False),
    ],
)
def test_count_known_exactly_below_10(state: RoundState, known_at_9: bool, known_at_10: bool) -> None:
    for count, known in ((9, known_at_9), (10, known_at_10)):
        assert Entry(ANNA, count, 0, state).known_exactly(exact_below=10) == known


def test_repr_of_an_entry_shows_its_states() -> None:
    entry = Entry(ANNA, 5, 0, RoundState.NOT_SENT)
    assert "reported 5" in repr(entry)
    assert "not sent, reachable" in repr(entry)
