"""Journal entries amount to what the same saves, one after the other, would have written."""

import msgspec

from countless.core.messages import SiteId
from countless.server.storage.base import Changes, CounterFields
from countless.server.storage.journal import Folded, encode_entry, fold

A, B = SiteId("a", 1), SiteId("b", 2**62)


def test_last_entry_wins_and_rows_are_sorted() -> None:
    entries = [
        Changes({"y": CounterFields(1, 2.5, 0)}, {"y": {B: 2**70, A: 1}}),
        Changes({"x": CounterFields(0, 1, 0), "y": CounterFields(2, 2**70, 3)}, {"y": {A: None}, "x": {A: 4}}),
    ]
    assert fold(map(encode_entry, entries)) == Folded(
        set(),
        [("x", 0, "1", "0"), ("y", 2, str(2**70), "3")],
        [("x", "a", 1, "4"), ("y", "b", 2**62, str(2**70))],
        [("y", "a", 1)],
    )


def test_deletion_undoes_the_entries_before_it_only() -> None:
    entries = [
        Changes({"x": CounterFields(1, 1, 0)}, {"x": {A: 1, B: 1}}),
        Changes({"x": CounterFields(0, 0, 0)}, {"x": {B: 7}}, deleted=["x"]),
    ]
    assert fold(map(encode_entry, entries)) == Folded({"x"}, [("x", 0, "0", "0")], [("x", "b", 2**62, "7")], [])


def test_entries_of_schema_2_are_read() -> None:
    entry = msgspec.msgpack.encode(([("x", 3, 12.5, str(2**70))], [("x", "a", 1, 9), ("x", "b", 2, -1)]))
    assert fold([entry]) == Folded(set(), [("x", 3, "12.5", str(2**70))], [("x", "a", 1, "9")], [("x", "b", 2)])
