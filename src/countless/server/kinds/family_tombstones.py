"""What an incarnation that was retired is told: the tombstones that it has."""

from collections.abc import Iterable

from countless.server.storage.rows import Tombstone, What
from countless.wire.families import KnownFamily, KnownLabels, known_items
from countless.wire.keys import FAMILY, Key


def known_families(tombstones: Iterable[Tombstone]) -> dict[Key, KnownFamily]:
    """From the tombstones of one incarnation.

    >>> from countless.core.messages import SiteId
    >>> f, g, web = Key(FAMILY, "f"), Key(FAMILY, "g"), SiteId("web", 1)
    >>> counts = [Tombstone(web, f, What.LABEL, 5, "a"), Tombstone(web, f, What.COUNT, 7)]
    >>> known = known_families([*counts, Tombstone(web, g, What.LEFT)])
    >>> known[f], known[g]
    (KnownFamily(total=7, complete=False, counts={'a': 5}), KnownFamily(total=0, complete=True, counts={}))
    """
    totals: dict[Key, int] = {}
    counts: dict[Key, dict[str, int]] = {}
    complete: set[Key] = set()
    for _, key, what, value, label in tombstones:
        if key.kind != FAMILY or what is What.WATERMARK:
            continue
        known = counts.setdefault(key, {})
        if what is What.LEFT:
            complete.add(key)
        elif what is What.LABEL:
            known[label] = value
        else:
            totals[key] = value
    return {key: KnownFamily(totals.get(key, 0), key in complete, known) for key, known in counts.items()}


def known_items_of(tombstones: Iterable[Tombstone]) -> list[KnownLabels]:
    return [item for key, known in known_families(tombstones).items() for item in known_items(str(key), known)]


def known_counts_of(tombstones: Iterable[Tombstone]) -> list[tuple[str, int]]:
    """Of counters; and of all windows together, the first one that was not left."""
    told = (each for each in tombstones if each.key.kind != FAMILY or each.what is What.WATERMARK)
    return sorted((str(each.key), each.value) for each in told)
