"""What the coordinator knew of an incarnation that it has retired."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from countless.wire.families import KnownFamily
from countless.wire.keys import ALL, COUNTER, FAMILY, Key, key_of


@dataclass(frozen=True, slots=True)
class Known:
    members: Mapping[Key, int | KnownFamily] = field(default_factory=dict)
    first_not_left: Mapping[Key, int] = field(default_factory=dict)  # by the key of all windows together

    def has_left(self, key: Key) -> bool:
        """It is a window, and everything that was counted in it is known."""
        return key.is_window and key.period < self.first_not_left.get(key.windows, 0)


def known_of(counts: Mapping[str, int], families: Mapping[str, KnownFamily]) -> Known:
    """From the texts of frames. The number that comes with the text of all windows together is the first window that
    has not left. Frames don't say whether of a counter or of a family, and no two of them have one name.

    >>> known = known_of({"hits": 7, "hits@hour": 5}, {})
    >>> known.members[Key(COUNTER, "hits")], known.has_left(Key(COUNTER, "hits", "hour", 4))
    (7, True)
    """
    keys = {key_of(COUNTER, text): count for text, count in counts.items()}
    left = {(key.name, key.calendar): count for key, count in keys.items() if key.period == ALL}
    return Known(
        {key: count for key, count in keys.items() if key.period != ALL}
        | {key_of(FAMILY, text): known for text, known in families.items()},
        {Key(kind, *which, ALL): period for which, period in left.items() for kind in (COUNTER, FAMILY)},
    )
