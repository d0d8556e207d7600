"""How many Python functions a message in process calls. The number is the same on each machine."""

import sys
from types import FrameType

from bench import figures
from bench.hot_path import report, warm_tracker
from countless.schemes.registry import SchemeName

SCHEMES: tuple[SchemeName, ...] = ("deterministic", "sampled", "dithered")


def calls_of_a_message(scheme: SchemeName, sites: int = 1000, laps: int = 50) -> float:
    """From `add()` to the new estimate; rounds and their messages are included."""
    tracker = warm_tracker(scheme, sites)
    before, calls = tracker.messages.total, 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        report(tracker, laps)
    finally:
        sys.setprofile(None)
    return calls / (tracker.messages.total - before)


def main() -> None:
    found: dict[str, float] = {scheme: calls_of_a_message(scheme) for scheme in SCHEMES}
    figures.add("Python calls of a message", found)
    for scheme, calls in found.items():
        print(f"{scheme:13} {calls:6.1f} Python calls of a message")
