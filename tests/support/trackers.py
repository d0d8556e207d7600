"""A tracker whose messages are recorded."""

from typing import Any

import pytest

from countless import Tracker
from countless.core.coordinator import Coordinator
from countless.core.messages import Message, SiteId
from countless.inprocess.network import MemoryNetwork, Receive

Line = tuple[SiteId, Message]


def tapped_tracker(**parameters: Any) -> tuple[Tracker, list[Line]]:
    """The tracker, and a list that receives every message with its site."""
    lines: list[Line] = []

    def network(coordinator: Coordinator, receive: Receive, *, count_bytes: bool) -> MemoryNetwork:
        tap = lambda site_id, message: lines.append((site_id, message))  # noqa: E731
        return MemoryNetwork(coordinator, receive, tap, count_bytes=count_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("countless.inprocess.tracked_total.MemoryNetwork", network)
        return Tracker(**parameters), lines
