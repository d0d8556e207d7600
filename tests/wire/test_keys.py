"""Keys and their texts: one to one, for everything that has a name. Names of counters and series."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from countless.core.calendar import Calendar
from countless.errors import InvalidParameter, ProtocolError
from countless.wire.keys import (
    ALL,
    BUDGET,
    COUNTER,
    FAMILY,
    MAX_NAME_CHARS,
    Key,
    calendar_fields,
    calendar_text,
    is_plain,
    key_of,
    overflow_name,
    parse_calendar,
    require_name,
    series_name,
    validate_name,
)

CALENDARS = [
    *(Calendar("minute"), Calendar("minute", "UTC", 15), Calendar("hour"), Calendar("hour", "UTC", 30)),
    *(
        Calendar("day"),
        Calendar("day", "Europe/Berlin", 6),
        Calendar("day", "Etc/GMT+12", 0),
        Calendar("day", "UTC", 6),
    ),
    *(Calendar("month"), Calendar("month", "America/New_York", 31)),
]
NAMES = st.text(min_size=1, max_size=20)
SERIES = st.builds(series_name, NAMES, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
KINDS = st.sampled_from([COUNTER, FAMILY])
WINDOWS = st.builds(
    Key,
    *(KINDS, NAMES | SERIES, st.sampled_from(CALENDARS).map(calendar_text), st.integers(0, 10**12 - 1) | st.just(ALL)),
)
# Texts that look much like those of windows
ALIKE = st.lists(st.sampled_from([*"a@:,0123 {}\n", "hour", "@day", "UTC", "@hour:", "@day,UTC,", "6:"])).map("".join)


@given(WINDOWS)
@example(Key(COUNTER, "a@hour:5", "hour", 6))
@example(Key(COUNTER, "a@hour", "day,Europe/Berlin,6", ALL))
def test_key_of_a_window_is_read_back_from_its_text(key: Key) -> None:
    assert key_of(key.kind, str(key)) == key
    assert key.is_window == (key.period != ALL)


@given(st.text() | SERIES | ALIKE, KINDS)
@example("a@hour:007", COUNTER)
@example("a@day,UTC,0:5", FAMILY)
def test_text_is_that_of_one_key(text: str, kind: str) -> None:
    key = key_of(kind, text)
    assert (str(key), key.kind) == (text, kind)
    assert is_plain(text) or key.calendar or key.name == text


@given(st.text() | ALIKE | WINDOWS.map(str))
def test_name_of_a_budget_is_never_that_of_a_window(name: str) -> None:
    key = key_of(BUDGET, name)
    assert key == Key(BUDGET, name)
    assert str(key) == str(key.window(20_000)) == name


@pytest.mark.parametrize("text", ["requests", "a@hour:", "a@hour:x", "a@week:3", "@hour:3", "@hour", "a@hour,UTC:3"])
def test_other_texts_are_names_without_windows(text: str) -> None:
    assert key_of(COUNTER, text) == Key(COUNTER, text)
    assert not Key(COUNTER, text).is_window


@pytest.mark.parametrize("text", ["a@hour:007", "a@hour,UTC,0:7", "a@month,UTC,1", "a@day,Europe/Berlin,06:7"])
def test_window_that_is_spelt_otherwise_is_a_name_that_no_counter_can_have(text: str) -> None:
    assert key_of(COUNTER, text) == Key(COUNTER, text)
    assert not is_plain(text)


@pytest.mark.parametrize("calendar", CALENDARS, ids=repr)
def test_calendar_is_read_back_from_its_text(calendar: Calendar) -> None:
    text = calendar_text(calendar)
    assert repr(parse_calendar(text)) == repr(Calendar(*calendar_fields(text))) == repr(calendar)


def test_calendars_have_different_texts() -> None:
    assert len({calendar_text(calendar) for calendar in CALENDARS}) == len(CALENDARS)


def test_key_of_an_unknown_calendar_has_no_calendar() -> None:
    assert key_of(COUNTER, "a@day,Moon/Base,6:7").calendar == "day,Moon/Base,6"
    with pytest.raises(InvalidParameter, match="tz"):
        parse_calendar("day,Moon/Base,6")
    with pytest.raises(InvalidParameter, match="anchor"):
        parse_calendar("day,UTC,77")


def test_series_name_does_not_depend_on_the_order_of_labels() -> None:
    assert series_name("hits", {"b": "2", "a": "1"}) == series_name("hits", {"a": "1", "b": "2"}) == 'hits{a="1",b="2"}'


def test_label_values_are_escaped() -> None:
    assert series_name("hits", {"a": 'x"y\\z\n'}) == 'hits{a="x\\"y\\\\z\\n"}'


def test_overflow_series_is_a_series_of_its_counter() -> None:
    assert overflow_name("hits") == 'hits{overflow="true"}'


@pytest.mark.parametrize("name", ["", "a\nb", "x" * (MAX_NAME_CHARS + 1), 7, None])
def test_invalid_name_is_refused(name: object) -> None:
    with pytest.raises(ProtocolError, match=r"counter is .*: it must be 1 to 500 printable characters"):
        require_name(name, "counter")
    with pytest.raises(InvalidParameter, match="counter must be 1 to 500 printable characters"):
        validate_name(name)


def test_longest_name_is_allowed() -> None:
    assert require_name("x" * MAX_NAME_CHARS, "site") == validate_name("x" * MAX_NAME_CHARS)
