"""How measured messages grow with sites, alpha and the total; and the frameworks that the paper argues against."""

from collections.abc import Iterator

from countless_lab.arena.framework_table import CLAIMS
from countless_lab.arena.framework_table import measure as play
from countless_lab.arena.scaling import Curve, Request, measure
from tools.tables import Table

NAMES = {
    "sites": "arena-sites",
    "sites above 1/alpha^2": "arena-above",
    "1/alpha": "arena-alpha",
    "ln N": "arena-total",
}


def main() -> Iterator[Table]:
    """`countless lab scaling`, with its defaults. Some minutes."""
    curves = measure(Request(), jobs=None)
    for axis, name in NAMES.items():
        some = [curve for curve in curves if curve.axis == axis]
        heads = [f"{x:,g}" for x in some[0].xs]
        if axis == "ln N":
            columns = ("messages by e-folds", *heads, "per e-fold", "a line explains")
            rows = [(*_cells(each), f"{each.slope:,.0f}", f"{each.explained:.2%}") for each in some]
        else:
            columns = (f"messages per e-fold by {axis}", *heads, "exponent")
            rows = [(*_cells(each), f"{each.slope:.2f}") for each in some]
        yield Table(name, columns, rows)


def _cells(curve: Curve) -> tuple[str, ...]:
    return f"`{curve.scheme}`", *curve.cells


def frameworks() -> Iterator[Table]:
    """256 and 1,024 sites, alpha = 20 %, delta = 5 %, 100,000 events, stop-after-jump, seed 1. Some minutes."""
    rows = []
    for name, claim in CLAIMS.items():
        found = [play(name, sites, 0.2, 0.05, 100_000, seed=1) for sites in (256, 1024)]
        marked = next((each.marked for each in found if each.marked != name), name)
        cells = [f"{each.messages:,}" for each in found] + [f"{each.worst:.2f}" for each in found]
        rows.append((marked, *cells, claim))
    heads = ("messages, 256 sites", "1,024 sites", "worst error / alpha, 256", "1,024")
    yield Table("arena-frameworks", ("tracker", *heads, "what the paper says of it"), rows)
