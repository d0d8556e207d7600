"""The demo on a terminal: a live view; in a pipe: plain lines."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from countless.demo.cost_table import CostRow
from countless.demo.scenario import Frame, Snapshot

_WIDTH = 42  # of the band, in characters


class Display:
    """Shows scenes. A terminal is redrawn; a pipe gets a line now and then."""

    def __init__(self, console: Console, alpha: float, url: str) -> None:
        self._console = console
        self._alpha = alpha
        self._url = url
        self._live: Live | None = None
        self._told: tuple[str, int] | None = None

    @contextmanager
    def showing(self) -> Iterator["Display"]:
        """While the demo runs."""
        if not self._console.is_terminal:
            yield self
            return
        with Live(console=self._console, refresh_per_second=12, transient=True) as self._live:
            yield self

    def show(self, frame: Frame, lines: list[CostRow]) -> None:
        """One scene."""
        if self._live is not None:
            self._live.update(self._picture(frame, lines))
            return
        fifth = (frame.act, int(frame.part * 5))
        if fifth != self._told:
            self._told = fifth
            sides = ", ".join(f"{name} {_words(side)}" for name, side in _sides(frame))
            print(f"{frame.act}, {frame.part:4.0%}: {sides}", flush=True)

    def sum_up(self, frame: Frame, lines: list[CostRow]) -> None:
        """At the end: who held, and the bill."""
        if self._console.is_terminal:
            self._console.print(Columns([self._panel(name, side) for name, side in _sides(frame)]))
        self._console.print(table(lines))
        self._console.print(
            f"\nPromised: an error of at most 1 x alpha = {self._alpha:.0%}. Under traffic that reacts to the answers "
            f"the classical tracker was wrong by {frame.theirs.worst:.2f} x alpha, "
            f"countless by {frame.ours.worst:.2f} x alpha."
        )

    def _picture(self, frame: Frame, lines: list[CostRow]) -> RenderableType:
        link = (f"{self._url}/", "cyan underline")
        head = Text.assemble((f"{frame.act} ", "bold"), f"{frame.part:4.0%}   the page: ", link)
        panels = [self._panel(name, side) for name, side in _sides(frame)]
        return Group(head, Columns(panels), table(lines))

    def _panel(self, name: str, side: Snapshot) -> Panel:
        colour = "red" if side.broken else "green"
        body = Text.assemble(
            (f"{side.estimate:,.0f}\n", "bold"),
            f"from {side.lower:,.0f} to {side.upper:,.0f}\n",
            (f"truth {side.total:,}\n", "dim"),
            (_band(side, self._alpha) + "\n", colour),
            f"{side.scheme}, {side.state}\n",
            f"{side.messages:,} messages\n",
            (f"worst error {side.worst:.2f} x alpha: {_verdict(side)}", f"bold {colour}"),
        )
        return Panel(body, title=name, width=_WIDTH + 6, border_style=colour)


def _sides(frame: Frame) -> tuple[tuple[str, Snapshot], tuple[str, Snapshot]]:
    return ("countless", frame.ours), ("classical", frame.theirs)


def _verdict(side: Snapshot) -> str:
    return "BROKEN" if side.broken else "holds"


def _words(side: Snapshot) -> str:
    return f"{side.estimate:,.0f} for {side.total:,} (worst error {side.worst:.2f} x alpha, {_verdict(side)})"


def _band(side: Snapshot, alpha: float) -> str:
    """Where the estimate lies around the truth: the brackets are 1 ± alpha, the ends 1 ± 3 alpha."""
    error = (side.estimate / side.total - 1) / alpha if side.total else 0.0
    cells = ["·"] * _WIDTH
    for mark, sign in ((-1.0, "["), (0.0, "|"), (1.0, "]")):
        cells[_cell(mark)] = sign
    cells[_cell(error)] = "█"
    return "".join(cells)


def _cell(error: float) -> int:
    return min(_WIDTH - 1, max(0, round((error / 3 + 1) / 2 * (_WIDTH - 1))))


def table(lines: list[CostRow]) -> Table:
    """The bill."""
    grid = Table("messages", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name in ("so far", "after a day at this rate"):
        grid.add_column(name, justify="right")
    for line in lines:
        grid.add_row(line.name, f"{line.so_far:,}", f"{line.in_a_day:,}", style="bold" if line is lines[-1] else "")
    return grid
