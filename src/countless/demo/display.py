"""The display of the demo: redrawn on a terminal, plain lines in a pipe."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.columns import Columns
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from countless.demo.acts import GATEWAYS, LIMIT, Admitted, Band, Bill

_WIDTH = 42  # of the error band, in characters
_EDGE = 4.0  # its ends, in multiples of alpha


class Display:
    def __init__(self, console: Console, alpha: float) -> None:
        self._console = console
        self._alpha = alpha
        self._live: Live | None = None

    def title(self, number: int, title: str) -> None:
        self._console.print(f"\n[bold]{number}. {title[0].upper()}{title[1:]}[/bold]")

    @contextmanager
    def act(self, number: int, title: str) -> Iterator[None]:
        """Frames that are shown within it replace each other on a terminal; a pipe gets the last one."""
        self.title(number, title)
        self._last: list[Band] = []
        if not self._console.is_terminal:
            yield
            for band in self._last:
                print(f"   {_describe(band)}", flush=True)
            return
        with Live(console=self._console, refresh_per_second=12) as self._live:
            yield
        self._live = None

    def show(self, bands: list[Band]) -> None:
        self._last = bands
        if self._live is not None:
            self._live.update(Columns([self._panel(band) for band in bands]))

    def _panel(self, band: Band) -> Panel:
        colour = "red" if band.broken else "green"
        body = Text.assemble(
            (f"{band.estimate:,.0f}\n", "bold"),
            (f"true total {band.total:,}\n", "dim"),
            (_picture(band, self._alpha) + "\n", colour),
            f"{band.messages:,} messages\n",
            (f"worst error {band.worst:.2f} x alpha: {_verdict(band)}", f"bold {colour}"),
        )
        return Panel(body, title=band.name, width=_WIDTH + 6, border_style=colour)

    def bill(self, bill: Bill) -> None:
        grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 3, 0, 0))
        grid.add_column()
        grid.add_column(justify="right")
        for name, messages in bill.messages.items():
            grid.add_row(f"   {name}", f"{messages:,} messages", style="bold" if name == "countless" else "")
        self._console.print(grid)
        self._console.print(f"   The error was at most {bill.worst:.2f} x alpha at every moment of the day.")

    def admitted(self, rows: list[Admitted]) -> None:
        for row in rows:
            over = f"{row.admitted - LIMIT:,} too many" if row.admitted > LIMIT else "never more than the limit"
            self._console.print(f"   {row.name}: {row.admitted:,} admitted, {over}; {row.messages} messages")


def limit_title() -> str:
    return f"{GATEWAYS} gateways share a limit of {LIMIT:,} requests"


def _verdict(band: Band) -> str:
    return "OUTSIDE" if band.broken else "inside"


def _describe(band: Band) -> str:
    return (
        f"{band.name:9} {band.estimate:>9,.0f} for {band.total:,}, worst error {band.worst:.2f} x alpha: "
        f"{_verdict(band)}; {band.messages:,} messages"
    )


def _picture(band: Band, alpha: float) -> str:
    """The error as a position: the brackets are at 1 ± alpha."""
    error = (band.estimate / band.total - 1) / alpha if band.total else 0.0
    cells = ["·"] * _WIDTH
    for mark, sign in ((-1.0, "["), (0.0, "|"), (1.0, "]")):
        cells[_cell(mark)] = sign
    cells[_cell(error)] = "█"
    return "".join(cells)


def _cell(error: float) -> int:
    return min(_WIDTH - 1, max(0, round((error / _EDGE + 1) / 2 * (_WIDTH - 1))))
