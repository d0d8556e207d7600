"""The display of the demo: redrawn on a terminal, plain lines in a pipe."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from countless_lab.demo.acts import DAY_EVENTS, Band, Bill
from countless_lab.demo.limit import KILLED, LIMIT, Shared

MAX_PANEL, MIN_PANEL = 48, 37  # columns; two of the smaller stand side by side on 80
EDGE = 4.0  # the ends of the picture of an error, in multiples of alpha
KEY = "   █ the error now   ━ the errors so far   [ ] what is promised"


class Display:
    """A frame stays for `frame_s` on a terminal, so that it can be read; a pipe gets the last frame of an act."""

    def __init__(self, console: Console, alpha: float, frame_s: float = 0.16) -> None:
        self._console = console
        self._alpha = alpha
        self._frame_s = frame_s
        self._live: Live | None = None
        self._last: RenderableType = ""
        self._shown_at = 0.0

    def title(self, number: int, title: str) -> None:
        self._console.print(f"\n[bold]{number}. {title}[/bold]")

    @contextmanager
    def act(self) -> Iterator[None]:
        """Frames that are shown within it replace each other."""
        if not self._console.is_terminal:
            yield
            self._console.print(self._last)
            return
        with Live(console=self._console, auto_refresh=False) as self._live:
            yield
        self._live = None

    def _show(self, frame: RenderableType) -> None:
        self._last = frame
        if self._live is not None:
            sleep(max(0.0, self._shown_at + self._frame_s - monotonic()))
            self._live.update(frame, refresh=True)
            self._shown_at = monotonic()

    def limits(self, limits: list[Shared], final: bool = False) -> None:
        """All who share the limit, side by side; only at the end can a limit be met exactly."""
        if self._console.is_terminal:
            self._show(Columns([self._gateways(each, self._width(), final) for each in limits]))
        else:
            self._show(Text("\n".join(f"   {each.name:17} {_admitted(each)}, {_held(each, final)}" for each in limits)))

    def _gateways(self, shared: Shared, width: int, final: bool) -> Panel:
        colour = "red" if shared.over > 0 else "green"
        body = Text(f"{_admitted(shared)}\n", "bold")
        longest = width - 30
        for gateway, admitted in enumerate(shared.admitted):
            bar = "█" * min(longest, round(longest * 2 * admitted / LIMIT))
            body.append(f"gateway {gateway + 1}  {bar:{longest}} {admitted:6,}", "dim")
            body.append(" kill -9\n" if shared.killed and gateway == KILLED else "\n", "bold red")
        body.append(_held(shared, final), f"bold {colour}")
        return Panel(body, title=shared.name, width=width, border_style=colour)

    def _width(self) -> int:
        return min(MAX_PANEL, max(MIN_PANEL, (self._console.width - 1) // 2))

    def bands(self, bands: list[Band]) -> None:
        drawn = Columns([self._panel(band, self._width()) for band in bands])
        self._show(drawn if self._console.is_terminal else Text("\n".join(map(_describe, bands))))

    def _panel(self, band: Band, width: int) -> Panel:
        colour = "red" if band.broken else "green"
        body = Text.assemble(
            (f"{band.estimate:,.0f}\n", "bold"),
            (f"true total {band.total:,}\n", "dim"),
            (_picture(band, self._alpha, width - 4) + "\n", colour),
            f"{band.messages:,} messages\n",
            (f"worst error {band.worst:.2f} x alpha: {_verdict(band)}", f"bold {colour}"),
        )
        return Panel(body, title=band.name, width=width, border_style=colour)

    def bill(self, day: Bill, later: Bill | None) -> None:
        """The messages of a day, or of its first hours; and those of a billion events."""
        grid = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
        grid.add_column("   messages")
        grid.add_column("in a day" if day.events == DAY_EVENTS else f"in {day.hours:.0f} h", justify="right")
        grid.add_column("for a billion events", justify="right")
        for name, messages in day.messages.items():
            style = "bold" if name == "countless" else ""
            grid.add_row(f"   {name}", f"{messages:,}", f"{later.messages[name]:,}" if later else "", style=style)
        self._show(grid)


def _admitted(shared: Shared) -> str:
    return f"{sum(shared.admitted):,} admitted"


def _held(shared: Shared, final: bool) -> str:
    if shared.over > 0:
        return f"{shared.over:,} TOO MANY"
    return "exactly the limit" if final and not shared.over else "inside the limit"


def _verdict(band: Band) -> str:
    return "OUTSIDE" if band.broken else "inside"


def _describe(band: Band) -> str:
    return (
        f"   {band.name:9} {band.estimate:>9,.0f} for {band.total:,}, worst error {band.worst:.2f} x alpha: "
        f"{_verdict(band)}; {band.messages:,} messages"
    )


def _picture(band: Band, alpha: float, width: int) -> str:
    """The error as a position, with all positions that it had: the brackets are at 1 ± alpha."""

    def cell(error: float) -> int:
        return min(width - 1, max(0, round((error / EDGE + 1) / 2 * (width - 1))))

    cells = ["·"] * width
    for position in range(cell(-band.under), cell(band.over) + 1):
        cells[position] = "━"
    for mark, sign in ((-1.0, "["), (0.0, "|"), (1.0, "]")):
        cells[cell(mark)] = sign
    cells[cell((band.estimate / band.total - 1) / alpha if band.total else 0.0)] = "█"
    return "".join(cells)
