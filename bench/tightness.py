"""How close a search comes to each bound of the certain claims."""

from collections.abc import Iterator

from countless_lab.tightness.groups import search_all
from tools.tables import Table

HALF = 0.5


def main() -> Iterator[Table]:
    """Seed 1. A minute or two."""
    rows = []
    for group, found in search_all():
        row = found.row
        worst = f"{found.ratio:.0f} times" if row.equality else f"{found.ratio:.2f}"
        if not row.equality and found.ratio < HALF and not row.why:
            raise ValueError(f"{row.name} is below {HALF}, and does not say why")
        rows.append((row.claim, row.bound, worst, f"`{group}`, {found.number}", row.why))
    columns = ("claim", "bound, or what is counted", "worst", "group, run", "why it stays below a half")
    yield Table("tightness", columns, rows)
