"""Names of windows: every calendar and period has one, and it is read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.calendar import Calendar
from countless.wire.windows import parse_window, shard_name, window_group, window_name

CALENDARS = [Calendar("minute"), Calendar("hour", "UTC", 30), Calendar("day", "Etc/GMT+12", 6), Calendar("month")]


@given(st.text(min_size=1), st.sampled_from(CALENDARS), st.integers(0, 10**9))
def test_window_name_is_read_back(series: str, calendar: Calendar, period: int) -> None:
    window = parse_window(window_name(series, calendar, period))
    assert window is not None
    assert (window.series, window.period, repr(window.calendar)) == (series, period, repr(calendar))
    assert window.group == window_group(series, calendar)
    assert str(window) == window_name(series, calendar, period)
    assert shard_name(str(window)) == series


@pytest.mark.parametrize("name", ["requests", "a@hour", "a@hour:", "a@hour:x", "a@week:3", "@hour:3", "a@hour,UTC:3"])
def test_other_names_are_not_windows(name: str) -> None:
    assert parse_window(name) is None
    assert shard_name(name) == name
