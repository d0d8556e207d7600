"""Frames as bytes and back; all other bytes are refused."""

from math import inf, nan
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.budget.amounts import MAX_AMOUNT
from countless.core.budget.messages import Ask, BudgetId, Pane, Quota
from countless.core.messages import Report, SetTrigger, Snapshot, StartRound
from countless.core.triggers import EveryNth, GeometricGrowth, OffsetMultiple
from countless.errors import ProtocolError
from countless.wire.budgets import MAX_PANES, BudgetLeave, BudgetLeaveAck, BudgetRejected, SetBudgetRule
from countless.wire.families import (
    FamilyJoin,
    FamilyLabels,
    FamilyLeave,
    FamilyLeaveAck,
    FamilyRejected,
    FamilyReport,
    FamilyResend,
    FamilyReset,
    FamilySteps,
    FamilySync,
    KnownFamily,
    KnownLabels,
    LabelCap,
    known_items,
    report_items,
)
from countless.wire.frames import (
    MAX_FRAME_BYTES,
    MAX_NUMBER,
    UP_ITEMS,
    CounterRejected,
    DownItem,
    Hello,
    HelloAck,
    IncarnationExpired,
    IncarnationRetired,
    Inherited,
    Item,
    Join,
    KnownCounts,
    Leave,
    LeaveAck,
    Rejoin,
    Sync,
    SyncAck,
    UpItem,
    decode_down,
    decode_up,
    encode_frames,
    retired_items,
)
from countless.wire.keys import MAX_NAME_CHARS

pack = msgspec.msgpack.encode

numbers = st.integers(0, 2**255 - 1) | st.integers(0, 300)
names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=MAX_NAME_CHARS)
amounts = st.integers(0, MAX_AMOUNT)
budgets = st.builds(BudgetId, names, amounts)
panes = st.lists(st.builds(Pane, st.floats(0, 1e9), numbers), max_size=MAX_PANES).map(tuple)
ups: st.SearchStrategy[UpItem] = st.one_of(
    st.builds(Report, names, numbers, numbers, numbers),
    st.builds(Snapshot, names, numbers, numbers),
    st.builds(Hello, numbers, names, numbers),
    st.builds(Join, names, numbers, numbers),
    st.builds(Leave, names, numbers, numbers),
    st.builds(Sync, numbers),
    st.just(Inherited()),
    st.builds(Ask, budgets, *[numbers] * 7, amounts, numbers, st.booleans(), panes),
    st.builds(BudgetLeave, budgets, numbers, numbers),
    st.builds(FamilyJoin, names, st.text(max_size=5), st.floats(0, 1), st.floats(0, 1), *[numbers] * 5),
    st.builds(FamilyLabels, names, st.lists(names, max_size=4).map(tuple)),
    st.builds(FamilyReport, names, numbers, numbers, st.lists(numbers, max_size=6).map(tuple)),
    st.builds(FamilySync, names, *[numbers] * 5),
    st.builds(FamilyLeave, names, *[numbers] * 5),
)
downs: st.SearchStrategy[DownItem] = st.one_of(
    st.builds(SetTrigger, names, numbers, st.just(OffsetMultiple(7, 3)), numbers),
    st.builds(HelloAck, numbers, numbers),
    st.builds(IncarnationRetired, st.lists(st.tuples(names, numbers), max_size=4).map(tuple), numbers),
    st.builds(KnownCounts, st.lists(st.tuples(names, numbers), max_size=4).map(tuple)),
    st.builds(IncarnationExpired, numbers),
    st.builds(LeaveAck, names),
    st.builds(SyncAck, numbers),
    st.builds(Rejoin, names),
    st.builds(CounterRejected, names, st.text(max_size=20)),
    st.builds(Quota, budgets, *[numbers] * 3, st.booleans(), st.none() | amounts, st.booleans()),
    st.builds(BudgetLeaveAck, budgets, numbers),
    st.builds(BudgetRejected, budgets, st.text(max_size=20)),
    st.builds(
        SetBudgetRule,
        *(budgets, amounts, st.none() | st.text(max_size=5), st.text(max_size=5), st.none() | st.integers(0, 60)),
        *(st.floats(0, 1), *[st.text(max_size=5)] * 3),
    ),
    st.builds(FamilySteps, names, numbers, numbers, numbers, st.booleans()),
    st.builds(FamilyResend, names),
    st.builds(FamilyLeaveAck, names),
    st.builds(FamilyReset, names),
    st.builds(FamilyRejected, names, st.text(max_size=20)),
    st.builds(
        *(KnownLabels, names, numbers, st.booleans()),
        st.lists(st.tuples(names | st.just(""), numbers), max_size=4).map(tuple),
    ),
)

# For sites in other languages: these bytes are the protocol.
VECTORS: list[tuple[list[Item], str]] = [
    ([Hello(1, "web-1", 7)], "91 94 04 01 a5 77 65 62 2d 31 07"),
    ([Join("hits", 0, 3), Snapshot("hits", 0, 0)], "92 94 05 a4 68 69 74 73 00 03 94 01 a4 68 69 74 73 00 00"),
    ([Leave("hits", 2, 1000)], "91 94 06 a4 68 69 74 73 02 cd 03 e8"),
    ([Sync(9)], "91 92 07 09"),
    ([Inherited()], "91 91 22"),
    ([HelloAck(1, 5000)], "91 93 08 01 cd 13 88"),
    ([IncarnationRetired((("hits", 5),), 77)], "91 93 09 91 92 a4 68 69 74 73 05 4d"),
    ([LeaveAck("hits")], "91 92 0a a4 68 69 74 73"),
    ([SyncAck(9)], "91 92 0b 09"),
    ([Rejoin("hits")], "91 92 0c a4 68 69 74 73"),
    ([CounterRejected("hits", "no")], "91 93 0d a4 68 69 74 73 a2 6e 6f"),
    ([SetTrigger("hits", 4, EveryNth(1), 99)], "91 95 03 a4 68 69 74 73 04 92 00 01 63"),
    ([FamilyLabels("hits", ("a", "b"))], "91 93 17 a4 68 69 74 73 92 a1 61 a1 62"),
    ([FamilyReport("hits", 1, 9, (2, 300, 0, 1))], "91 95 18 a4 68 69 74 73 01 09 94 02 cd 01 2c 00 01"),
    ([FamilySync("hits", 1, 2, 3, 9, 5)], "91 97 19 a4 68 69 74 73 01 02 03 09 05"),
    ([FamilySteps("hits", 1, 2, 3, True)], "91 96 1b a4 68 69 74 73 01 02 03 c3"),
    ([FamilyResend("hits")], "91 92 1c a4 68 69 74 73"),
    ([Join("hits", 0, 2**64)], "91 94 05 a4 68 69 74 73 00 c4 09 00 00 00 00 00 00 00 00 01"),
]

TOKENS = ["tokens", 0]
MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "not an array": pack(7),
    "an item that is no array": pack([7]),
    "an empty item": pack([[]]),
    "an unknown kind": pack([[99, "hits"]]),
    "a kind that is a boolean": pack([[True, "hits", 1, 2]]),
    "a join without a count": pack([[5, "hits", 0]]),
    "a join with more": pack([[5, "hits", 0, 1, 2]]),
    "a negative count": pack([[5, "hits", 0, -1]]),
    "a count with a point": pack([[5, "hits", 0, 1.0]]),
    "a count beyond the limit": pack([[5, "hits", 0, b"\xff" * 32]]),
    "a report beyond the limit": pack([[0, "hits", 0, b"\xff" * 32, 1]]),
    "a counter without a name": pack([[5, "", 0, 1]]),
    "a counter with a line break": pack([[5, "a\nb", 0, 1]]),
    "a counter with a name too long": pack([[5, "a" * (MAX_NAME_CHARS + 1), 0, 1]]),
    "a report with a name too long": pack([[0, "a" * (MAX_NAME_CHARS + 1), 0, 1, 1]]),
    "a site that is a number": pack([[4, 1, 7, 1]]),
    "an item of a coordinator": pack([[11, 1]]),
    "a trigger from a site": pack([[2, "hits", 1, [0, 1]]]),
    "a want beyond the limit": pack([[14, TOKENS, *[0] * 7, MAX_AMOUNT + 1, 0, False, []]]),
    "a want in bytes": pack([[14, TOKENS, *[0] * 7, b"\x01", 0, False, []]]),
    "a total beyond the limit": pack([[14, TOKENS, 1, 0, 0, b"\xff" * 32, 0, 0, 0, 0, 0, False, []]]),
    "a negative total": pack([[14, TOKENS, 1, 0, 0, -1, 0, 0, 0, 0, 0, False, []]]),
    "more panes than a site has": pack([[14, TOKENS, *[0] * 9, False, [[1.0, 1]] * (MAX_PANES + 1)]]),
    "a pane of an age without end": pack([[14, TOKENS, *[0] * 9, False, [[inf, 1]]]]),
    "a pane of an age that is no number": pack([[14, TOKENS, *[0] * 9, False, [[nan, 1]]]]),
    "a pane without units": pack([[14, TOKENS, *[0] * 9, False, [[1.0]]]]),
    "negative units": pack([[16, TOKENS, 77, -1]]),
    "units with a point": pack([[16, TOKENS, 77, 1.0]]),
    "a budget without a period": pack([[16, ["tokens"], 77, 1]]),
    "a budget that is a name": pack([[16, "tokens", 77, 1]]),
    "a budget without a name": pack([[16, ["", 0], 77, 1]]),
    "a budget with a line break": pack([[16, ["a\nb", 0], 77, 1]]),
    "a budget with a name too long": pack([[16, ["a" * (MAX_NAME_CHARS + 1), 0], 77, 1]]),
    "a quota from a site": pack([[15, TOKENS, 1, 1, 10, True, None, False]]),
    "a family without a name": pack([[23, "", ["a"]]]),
    "a label without a name": pack([[23, "hits", [""]]]),
    "a label with a line break": pack([[23, "hits", ["a\nb"]]]),
    "a label with a name too long": pack([[23, "hits", ["a" * (MAX_NAME_CHARS + 1)]]]),
    "a label that is a number": pack([[23, "hits", [7]]]),
    "a negative count of a label": pack([[24, "hits", 1, 1, [1, -1]]]),
    "a count of a label beyond the limit": pack([[24, "hits", 1, 1, [1, b"\xff" * 32]]]),
    "steps from a site": pack([[27, "hits", 1, 1, 1, True]]),
    "more than a frame may have": b"\x91" + b"\x00" * MAX_FRAME_BYTES,
    "arrays in arrays without end": b"\x91" * 100_000,
    "an array longer than any memory": b"\xdd\xff\xff\xff\xff",
}


@pytest.mark.slow
@given(st.lists(ups))
def test_items_of_a_site_are_decoded_as_encoded(items: list[UpItem]) -> None:
    assert [item for frame in encode_frames(items) for item in decode_up(frame)] == items


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Double(float):
    pass


def test_numbers_and_texts_of_classes_of_the_program_are_encoded_as_what_they_are() -> None:
    """As those of numpy: a TypeError would end the client's thread, and with it all of its counting."""
    given = FamilyJoin(Text("uses"), "labels", Double(0.02), 0.0, 0, 1, 1, Whole(5), Whole(2**70))
    (frame,) = encode_frames([given])
    assert frame == b"".join(encode_frames([FamilyJoin("uses", "labels", 0.02, 0.0, 0, 1, 1, 5, 2**70)]))
    with pytest.raises(TypeError):
        list(encode_frames([LeaveAck(object())]))  # type: ignore[arg-type]


@given(st.lists(downs))
def test_items_of_the_coordinator_are_decoded_as_encoded(items: list[DownItem]) -> None:
    assert [item for frame in encode_frames(items) for item in decode_down(frame)] == items


@pytest.mark.parametrize(("items", "data"), VECTORS, ids=[data for _, data in VECTORS])
def test_frame_vectors(items: list[Item], data: str) -> None:
    assert [frame.hex(" ") for frame in encode_frames(items)] == [data]
    up = isinstance(items[0], UpItem)
    assert (decode_up if up else decode_down)(bytes.fromhex(data)) == items


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_frame_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_up(data)


def test_item_of_a_site_is_refused_from_the_coordinator() -> None:
    with pytest.raises(ProtocolError, match=r"Invalid value 7 - at `\$\[0\]\[0\]`"):
        decode_down(next(encode_frames([Sync(1)])))


def test_many_items_are_split_into_frames_within_the_limit() -> None:
    items: list[UpItem] = [Join(f"counter-{number}", 0, number) for number in range(500)]
    frames = list(encode_frames(items, max_bytes=300))
    assert max(map(len, frames)) <= 300
    assert [item for frame in frames for item in decode_up(frame)] == items


NAME, NUMBER = "\U0001f600" * MAX_NAME_CHARS, MAX_NUMBER
BUDGET = BudgetId(NAME, MAX_AMOUNT)
PANES = (Pane(1e300, NUMBER),) * MAX_PANES
LARGEST: list[Item] = [
    Report(NAME, NUMBER, NUMBER, NUMBER),
    Snapshot(NAME, NUMBER, NUMBER),
    StartRound(NAME, NUMBER, OffsetMultiple(1 << 64, NUMBER % (1 << 64))),
    SetTrigger(NAME, NUMBER, GeometricGrowth(0.1, 1 << 64, 63), NUMBER),
    Hello(NUMBER, NAME, NUMBER),
    Join(NAME, NUMBER, NUMBER),
    Leave(NAME, NUMBER, NUMBER),
    Sync(NUMBER),
    Inherited(),
    HelloAck(NUMBER, NUMBER),
    *retired_items((NAME[:490] + str(counter), NUMBER) for counter in range(9_000)),
    IncarnationExpired(NUMBER),
    LeaveAck(NAME),
    SyncAck(NUMBER),
    Rejoin(NAME),
    CounterRejected(NAME, NAME),
    Ask(BUDGET, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, MAX_AMOUNT, NUMBER, True, PANES),
    Quota(BUDGET, NUMBER, NUMBER, NUMBER, True, MAX_AMOUNT, True),
    BudgetLeave(BUDGET, NUMBER, NUMBER),
    BudgetLeaveAck(BUDGET, NUMBER),
    BudgetRejected(BUDGET, NAME),
    SetBudgetRule(BUDGET, MAX_AMOUNT, NAME, NAME, 31, 0.5, NAME, NAME, NAME),
    FamilyJoin(NAME, NAME, 0.5, 0.5, *[NUMBER] * 5),
    *report_items(NAME, NUMBER, NUMBER, {NAME[:490] + str(label): NUMBER for label in range(2_000)}, {}),
    FamilySync(NAME, *[NUMBER] * 5),
    FamilyLeave(NAME, *[NUMBER] * 5),
    FamilySteps(NAME, NUMBER, NUMBER, NUMBER, True),
    FamilyResend(NAME),
    FamilyLeaveAck(NAME),
    FamilyReset(NAME),
    FamilyRejected(NAME, NAME),
    *known_items(NAME, KnownFamily(NUMBER, False, {NAME[:490] + str(label): NUMBER for label in range(2_000)})),
    LabelCap(NUMBER),
]


def test_items_of_every_kind_fit_in_a_frame_at_their_largest() -> None:
    assert {type(item) for item in LARGEST} == set(get_args(UpItem)) | set(get_args(DownItem))
    for item in LARGEST:
        (frame,) = encode_frames([item])
        assert len(frame) <= MAX_FRAME_BYTES
        assert (decode_up if type(item) in UP_ITEMS else decode_down)(frame) == [item]


@given(st.lists(st.tuples(names, numbers)))
def test_known_counts_are_sent_whole(known: list[tuple[str, int]]) -> None:
    *first, last = retired_items(known)
    assert all(isinstance(item, KnownCounts) for item in first)
    assert isinstance(last, IncarnationRetired)
    assert [pair for item in (*first, last) for pair in item.known_counts] == known


@given(st.dictionaries(names | st.just(""), numbers, min_size=1))
def test_labels_are_sent_whole_and_named_once(counts: dict[str, int]) -> None:
    numbered: dict[str, int] = {}
    first, again = (list(report_items("f", 1, 9, counts, numbered)) for _ in range(2))
    named = ["", *(label for item in first if isinstance(item, FamilyLabels) for label in item.labels)]
    for items in (first, again):
        reports = [item for item in items if isinstance(item, FamilyReport)]
        pairs = [pair for item in reports for pair in zip(item.counts[::2], item.counts[1::2], strict=True)]
        assert {named[number]: count for number, count in pairs} == counts
    assert all(isinstance(item, FamilyReport) for item in again)
    known = list(known_items("f", KnownFamily(7, True, counts)))
    assert [pair for item in known for pair in item.label_counts] == list(counts.items())


def decodes_or_refuses(data: bytes) -> None:
    for decode in (decode_up, decode_down):
        try:
            items = decode(data)
        except ProtocolError:
            continue
        assert [item for frame in encode_frames(items) for item in decode(frame)] == items


@given(st.binary(max_size=80))
def test_any_bytes_are_a_frame_or_a_protocol_error(data: bytes) -> None:
    decodes_or_refuses(data)


@given(st.lists(ups | downs, min_size=1, max_size=3), st.data())
def test_damaged_frames_are_a_frame_or_a_protocol_error(items: list[Item], data: st.DataObject) -> None:
    damaged = bytearray(next(encode_frames(items)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    decodes_or_refuses(bytes(damaged))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 34), plain, plain, plain).map(list), max_size=3))
def test_random_items_are_a_frame_or_a_protocol_error(items: list[list[object]]) -> None:
    decodes_or_refuses(pack(items))
