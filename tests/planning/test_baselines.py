"""Messages of flushes where only the number of events is known."""

from countless.planning.baselines import flush_messages


def test_flush_sends_once_per_site_and_period_but_not_more_than_events() -> None:
    assert flush_messages(1000, 10 * 675.0, 15) == 450
    assert flush_messages(1000, 10 * 675.0, 1) == 1000
