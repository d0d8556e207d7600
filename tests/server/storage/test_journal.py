"""Journal entries amount to what the same saves, one after the other, would have written."""

from countless.core.messages import SiteId
from countless.server.storage.base import Changes, CounterFields
from countless.server.storage.journal import Journal, Slice, decode_entry, encode_entry

A, B = SiteId("a", 1), SiteId("b", 2**62)


def folded(*entries: Changes) -> Slice | None:
    journal = Journal()
    for changes in entries:
        journal.add(changes, 0)
    return journal.begin_fold(len(entries)).take(100)


def test_entry_is_decoded_as_encoded() -> None:
    changes = Changes({"x": CounterFields(2, 2.5, 2**70)}, {"x": {A: None, B: 2**70}}, deleted=["x"])
    assert decode_entry(encode_entry(changes)) == changes


def test_last_entry_wins_and_rows_are_sorted() -> None:
    assert folded(
        Changes({"y": CounterFields(1, 2.5, 0)}, {"y": {B: 2**70, A: 1}}),
        Changes({"x": CounterFields(0, 1, 0), "y": CounterFields(2, 2**70, 3)}, {"y": {A: None}, "x": {A: 4}}),
    ) == Slice(
        [("x", 0, "1", "0"), ("y", 2, str(2**70), "3")],
        [("x", "a", 1, "4"), ("y", "b", 2**62, str(2**70))],
        [("y", "a", 1)],
    )


def test_deletion_undoes_the_entries_before_it_only() -> None:
    assert folded(
        Changes({"x": CounterFields(1, 1, 0)}, {"x": {A: 1, B: 1}}),
        Changes({"x": CounterFields(0, 0, 0)}, {"x": {B: 7}}, deleted=["x"]),
    ) == Slice([("x", 0, "0", "0")], [("x", "b", 2**62, "7")], [])


def test_window_that_is_closed_is_deleted_from_the_journal() -> None:
    closed = Changes(counts={"x": {B: 7}}, closed=["x"])
    assert folded(Changes(counts={"x": {A: 1, B: 1}}), closed) == Slice([], [("x", "b", 2**62, "7")], [])
    assert decode_entry(encode_entry(closed)) == Changes(counts={"x": {B: 7}}, deleted=["x"])


def test_rows_of_a_counter_that_is_deleted_during_a_fold_are_not_written() -> None:
    journal = Journal()
    journal.add(Changes(counts={"x": {A: 1, B: 2}, "y": {A: 3}}), 0)
    fold = journal.begin_fold(1)
    assert fold.take(1) == Slice([], [("x", "a", 1, "1")], [])
    journal.add(Changes(counts={"x": {B: 7}}, deleted=["x"]), 0)
    assert fold.take(2) == Slice([], [("y", "a", 1, "3")], [])
    assert fold.take(1) is None
    assert journal.begin_fold(2).take(1) == Slice([], [("x", "b", 2**62, "7")], [])
