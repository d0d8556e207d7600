"""A progress bar on a terminal; nothing in a pipe or a file."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Bar = Callable[[float], None]


@contextmanager
def progress(what: str) -> Iterator[Bar | None]:
    """A function to call with the part done, from 0 to 1. The bar is on standard error and removed at the end."""
    console = Console(stderr=True)
    if not (console.is_terminal and sys.stdout.isatty()):
        yield None
        return
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda part: bar.update(task, completed=part)
