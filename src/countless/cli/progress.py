"""Progress of a long run on standard error: a bar with the time that is left, or a line every ten seconds in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

Bar = Callable[[float], None]
LINE_S = 10.0


@contextmanager
def progress(what: str, clock: Callable[[], float] = monotonic) -> Iterator[Bar]:
    """A function to call with the part done, from 0 to 1. The bar is removed at the end."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(what, clock)
        return
    left = TimeRemainingColumn()
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), left, TextColumn("left"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda part: bar.update(task, completed=part)


def _lines(what: str, clock: Callable[[], float]) -> Bar:
    began = shown = clock()

    def show(part: float) -> None:
        nonlocal shown
        now = clock()
        if now - shown >= LINE_S:
            shown = now
            print(f"{what}: {part:.0%} after {now - began:.0f} s", file=sys.stderr, flush=True)

    return show
