"""The groups of claims, and how many runs of each a search plays."""

from countless_lab.tightness import budgets, counters, families, restores, sums, windows
from countless_lab.tightness.search import Found, Group, search

GROUPS: dict[str, tuple[Group, int]] = {  # the runs take some seconds each
    "counters": (counters.GROUP, 1500),
    "windows": (windows.GROUP, 60),
    "families": (families.GROUP, 400),
    "sums": (sums.GROUP, 300),
    "budgets": (budgets.GROUP, 800),
    "restores": (restores.GROUP, 300),
}


def search_all(scale: float = 1.0, seed: int = 1) -> list[tuple[str, Found]]:
    """Each row with the name of its group, after `scale` times the usual number of runs."""
    found: list[tuple[str, Found]] = []
    for name, (group, runs) in GROUPS.items():
        found += [(name, each) for each in search(group, max(1, int(scale * runs)), seed)]
    return found
