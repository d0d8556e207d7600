"""What the tombstones of an incarnation say of its families."""

from collections.abc import Iterable

from countless.server.storage.base import left_tombstone
from countless.wire.families import KnownFamily, KnownLabels, known_items


def is_family_tombstone(name: str) -> bool:
    return name.startswith("\n")


def has_count(name: str) -> bool:
    """False for `left_tombstone`."""
    return not name.endswith("\n\n")


def known_families(tombstones: Iterable[tuple[str, int]]) -> dict[str, KnownFamily]:
    """From the tombstones of one incarnation.

    >>> from countless.server.storage.base import label_tombstone, tombstone_of
    >>> known_families([(label_tombstone("f", "a"), 5), (tombstone_of("f"), 7), (left_tombstone("g"), 0), ("hits", 1)])
    {'f': KnownFamily(total=7, complete=False, counts={'a': 5}), 'g': KnownFamily(total=0, complete=True, counts={})}
    """
    totals: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {}
    complete: set[str] = set()
    for tombstone, count in filter(lambda each: is_family_tombstone(each[0]), tombstones):
        name, *label = tombstone[1:].split("\n", 1)
        known = counts.setdefault(name, {})
        if not label:
            totals[name] = count
        elif tombstone == left_tombstone(name):
            complete.add(name)
        else:
            known[label[0]] = count
    return {name: KnownFamily(totals.get(name, 0), name in complete, known) for name, known in counts.items()}


def known_items_of(tombstones: Iterable[tuple[str, int]]) -> list[KnownLabels]:
    return [item for name, known in known_families(tombstones).items() for item in known_items(name, known)]
