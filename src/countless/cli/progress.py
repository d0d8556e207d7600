"""A progress bar for people; nothing where the output goes into a pipe or a file."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Bar = Callable[[float], None]


@contextmanager
def progress(what: str) -> Iterator[Bar | None]:
    """Something to call with the part that is done, from 0 to 1; it is drawn on standard error and then wiped away."""
    console = Console(stderr=True)
    if not (console.is_terminal and sys.stdout.isatty()):
        yield None
        return
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda part: bar.update(task, completed=part)
