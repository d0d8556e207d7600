"""The ledger keeps every count exactly once."""

import pytest

from countless.core.ledger import Ledger
from countless.core.messages import SiteId
from countless.errors import InvariantBroken, ProtocolError

ANNA, BERT = SiteId("anna"), SiteId("bert")


def test_it_adds_up_what_is_known() -> None:
    ledger = Ledger(departed=100)
    ledger.enter(ANNA, 5, slot=0)
    ledger.enter(BERT, 7, slot=1).reported = 9
    assert ledger.known_total == 114
    assert (len(ledger), ledger.present) == (2, 2)
    assert [entry.site_id for entry in ledger] == [ANNA, BERT]


def test_a_site_that_left_keeps_its_place_until_the_round_is_settled() -> None:
    ledger = Ledger()
    entry = ledger.enter(ANNA, 5, slot=0)
    ledger.leave(entry)
    assert (len(ledger), ledger.present, ledger.departed, ledger.known_total) == (1, 0, 0, 5)
    ledger.settle()
    assert (len(ledger), ledger.present, ledger.departed, ledger.known_total) == (0, 0, 5, 5)
    assert ANNA not in ledger


def test_two_lives_of_a_site_are_two_entries() -> None:
    ledger = Ledger()
    ledger.leave(ledger.enter(ANNA, 5, slot=0))
    ledger.enter(ANNA._replace(incarnation=1), 2, slot=1)
    assert ledger.known_total == 7
    ledger.settle()
    assert ledger.known_total == 7


def test_one_life_enters_once() -> None:
    ledger = Ledger()
    ledger.enter(ANNA, 5, slot=0)
    with pytest.raises(InvariantBroken, match="already"):
        ledger.enter(ANNA, 6, slot=1)
    assert ledger.known_total == 5


def test_a_site_that_could_not_be_taken_in_leaves_no_trace() -> None:
    ledger = Ledger()
    ledger.forget(ledger.enter(ANNA, 5, slot=0))
    assert (len(ledger), ledger.present, ledger.known_total) == (0, 0, 0)


def test_a_stranger_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match=r"'bert' \(life 0\) has not joined"):
        Ledger()[BERT]


def test_repr_tells_the_facts() -> None:
    entry = Ledger().enter(ANNA, 5, slot=0)
    entry.silent = True
    assert "known 5" in repr(entry)
    assert "silent" in repr(entry)
