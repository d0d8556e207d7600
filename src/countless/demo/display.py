"""The display of the demo: redrawn on a terminal, plain lines in a pipe."""

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

_WIDTH = 42  # of the error band, in characters


class Display:
    """Shows frames. In a pipe, one line for each fifth of an act."""

    def __init__(self, console: Console, alpha: float, url: str) -> None:
        self._console = console
        self._alpha = alpha
        self._url = url
        self._live: Live | None = None
        self._printed: tuple[str, int] | None = None

    @contextmanager
    def showing(self) -> Iterator["Display"]:
        if not self._console.is_terminal:
            yield self
            return
        with Live(console=self._console, refresh_per_second=12, transient=True) as self._live:
            yield self

    def show(self, frame: Frame, rows: list[CostRow]) -> None:
        if self._live is not None:
            self._live.update(self._picture(frame, rows))
            return
        fifth = (frame.act, int(frame.part * 5))
        if fifth != self._printed:
            self._printed = fifth
            trackers = ", ".join(f"{name} {_describe(tracker)}" for name, tracker in _trackers(frame))
            print(f"{frame.act}, {frame.part:4.0%}: {trackers}", flush=True)

    def sum_up(self, frame: Frame, rows: list[CostRow]) -> None:
        if self._console.is_terminal:
            self._console.print(Columns([self._panel(name, tracker) for name, tracker in _trackers(frame)]))
        self._console.print(table(rows))
        self._console.print(
            f"\nGuaranteed: an error of at most 1 x alpha = {self._alpha:.0%}. With traffic that reacts to the answers "
            f"the worst error of the classical tracker was {frame.theirs.worst:.2f} x alpha, "
            f"that of countless {frame.ours.worst:.2f} x alpha."
        )

    def _picture(self, frame: Frame, rows: list[CostRow]) -> RenderableType:
        link = (f"{self._url}/", "cyan underline")
        head = Text.assemble((f"{frame.act} ", "bold"), f"{frame.part:4.0%}   the page: ", link)
        panels = [self._panel(name, tracker) for name, tracker in _trackers(frame)]
        return Group(head, Columns(panels), table(rows))

    def _panel(self, name: str, tracker: Snapshot) -> Panel:
        colour = "red" if tracker.broken else "green"
        body = Text.assemble(
            (f"{tracker.estimate:,.0f}\n", "bold"),
            f"from {tracker.lower:,.0f} to {tracker.upper:,.0f}\n",
            (f"true total {tracker.total:,}\n", "dim"),
            (_band(tracker, self._alpha) + "\n", colour),
            f"{tracker.scheme}, {tracker.state}\n",
            f"{tracker.messages:,} messages\n",
            (f"worst error {tracker.worst:.2f} x alpha: {_verdict(tracker)}", f"bold {colour}"),
        )
        return Panel(body, title=name, width=_WIDTH + 6, border_style=colour)


def _trackers(frame: Frame) -> tuple[tuple[str, Snapshot], tuple[str, Snapshot]]:
    return ("countless", frame.ours), ("classical", frame.theirs)


def _verdict(tracker: Snapshot) -> str:
    return "BROKEN" if tracker.broken else "holds"


def _describe(tracker: Snapshot) -> str:
    return (
        f"{tracker.estimate:,.0f} for {tracker.total:,} (worst error {tracker.worst:.2f} x alpha, {_verdict(tracker)})"
    )


def _band(tracker: Snapshot, alpha: float) -> str:
    """The error as a position: the brackets are at 1 ± alpha, the ends at 1 ± 3 alpha."""
    error = (tracker.estimate / tracker.total - 1) / alpha if tracker.total else 0.0
    cells = ["·"] * _WIDTH
    for mark, sign in ((-1.0, "["), (0.0, "|"), (1.0, "]")):
        cells[_cell(mark)] = sign
    cells[_cell(error)] = "█"
    return "".join(cells)


def _cell(error: float) -> int:
    return min(_WIDTH - 1, max(0, round((error / 3 + 1) / 2 * (_WIDTH - 1))))


def table(rows: list[CostRow]) -> Table:
    grid = Table("messages", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name in ("so far", "after a day at this rate"):
        grid.add_column(name, justify="right")
    for row in rows:
        grid.add_row(row.name, f"{row.so_far:,}", f"{row.in_a_day:,}", style="bold" if row is rows[-1] else "")
    return grid
