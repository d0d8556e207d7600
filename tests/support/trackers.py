"""A tracker whose messages are recorded."""

from typing import Any

from countless import Tracker
from countless.core.messages import Message, SiteId
from countless.inprocess.world import TrackedTotal

Line = tuple[SiteId, Message]


def tapped_tracker(**parameters: Any) -> tuple[Tracker, list[Line]]:
    """The tracker, and a list that receives every message with its site."""
    lines: list[Line] = []
    tracker = Tracker(**parameters)
    assert isinstance(tracker._count, TrackedTotal)
    tracker._count.meter.taps.append(lambda site_id, message: lines.append((site_id, message)))
    return tracker, lines
