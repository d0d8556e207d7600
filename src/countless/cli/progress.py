"""A progress bar with the time that is left, on a terminal; nothing in a pipe or a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

Bar = Callable[[float], None]


@contextmanager
def progress(what: str) -> Iterator[Bar | None]:
    """A function to call with the part done, from 0 to 1. The bar is on standard error and removed at the end."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    left = TimeRemainingColumn()
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), left, TextColumn("left"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda part: bar.update(task, completed=part)
