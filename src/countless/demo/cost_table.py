"""What the same count would have cost in other ways, so far and after a day at this rate."""

from math import log2
from typing import NamedTuple

_DAY = 86_400.0
FLUSHES = (1, 15, 60)


class CostRow(NamedTuple):
    """One way to count."""

    name: str
    so_far: int
    in_a_day: int


def cost_table(sites: int, total: int, seconds: float, messages: int, messages_to_double: int) -> list[CostRow]:
    """Other ways pay by the event or by the second; Countless pays by the doubling of the total."""
    per_day = int(total * _DAY / seconds)
    doublings = log2(max(1.0, per_day / total))
    lines = [CostRow("a message for each event", total, per_day)]
    for interval in FLUSHES:
        name = f"a flush every {interval} s"
        lines.append(CostRow(name, sites * int(seconds / interval), sites * int(_DAY / interval)))
    return [*lines, CostRow("countless", messages, int(messages + doublings * messages_to_double))]
