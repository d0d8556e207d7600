"""What the same count would have cost in other ways, so far and after a day at this rate."""

from math import log2
from typing import NamedTuple

from countless.planning.baselines import FLUSH_PERIODS_S, flush_messages

_DAY_S = 86_400.0


class CostRow(NamedTuple):
    name: str
    so_far: int
    in_a_day: int


def cost_table(sites: int, total: int, seconds: float, messages: int, messages_to_double: int) -> list[CostRow]:
    """One message per event and flushes grow with time; Countless sends `messages_to_double` per doubling."""
    per_day = int(total * _DAY_S / seconds)
    doublings = log2(max(1.0, per_day / total))
    rows = [CostRow("a message for each event", total, per_day)]
    for period in FLUSH_PERIODS_S:
        so_far = flush_messages(total, sites * seconds, period)
        rows.append(CostRow(f"a flush every {period} s", so_far, flush_messages(per_day, sites * _DAY_S, period)))
    return [*rows, CostRow("countless", messages, int(messages + doublings * messages_to_double))]
