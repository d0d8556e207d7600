"""The table: the best of each column stands out, whoever it is."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.table import Table

from race.killed import Loss
from race.play import Result
from race.workloads import Workload


class Column(NamedTuple):
    """A number of each row, and how to write it. Small is good."""

    title: str
    number: Callable[[Result], float]
    write: Callable[[float], str]
    judged: bool = True


def whole(value: float) -> str:
    """1,234."""
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """Two figures, and never a zero that is none."""
    return f"{100 * value:.3g} %"


def seconds(value: float) -> str:
    """One decimal."""
    return f"{value:,.1f} s"


COLUMNS = (
    Column("messages", lambda row: row.messages + row.signs, whole),
    Column("of them signs\nof life", lambda row: row.signs, whole, judged=False),
    Column("bytes", lambda row: row.bytes, whole),
    Column("lost on\nthe way", lambda row: row.dropped, whole, judged=False),
    Column("worst\nerror", lambda row: row.worst_error, percent),
    Column("... 2nd\nhalf", lambda row: row.late_error, percent),
    Column("oldest\nanswer", lambda row: row.worst_age, seconds),
    Column("CPU s per\n1e6 events", lambda row: row.cpu_seconds_per_million, lambda value: f"{value:,.1f}"),
)
END_ROUND = Column("over\nquota", lambda row: row.over_quota or 0.0, percent)


def results_table(workload: Workload, rows: Sequence[Result], alpha: float) -> Table:
    """One workload."""
    columns = (*COLUMNS, END_ROUND) if workload.quota else COLUMNS
    table = Table(title=_title(workload, alpha), title_justify="left", caption_justify="left")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column.title, justify="right")
    best = [min(column.number(row) for row in rows) for column in columns]
    for row in rows:
        numbers = [(column, column.number(row)) for column in columns]
        cells = [
            f"[bold green]{column.write(number)}[/]" if column.judged and number == least else column.write(number)
            for (column, number), least in zip(numbers, best, strict=True)
        ]
        table.add_row(row.contestant, *cells)
    return table


def losses_table(rows: Sequence[Loss]) -> Table:
    """What was lost."""
    first = rows[0]
    title = f"{first.workload}: events lost for good by kill -9 (of {first.counted_until_then:,} counted until then)"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("all sites\nkilled", justify="right")
    table.add_column("server killed,\nand back", justify="right")
    for row in rows:
        table.add_row(row.contestant, *map(_lost, (row.sites_killed, row.server_killed)))
    return table


def _lost(events: int) -> str:
    return f"{events:,}" if events else "[bold green]0[/]"


def _title(workload: Workload, alpha: float) -> str:
    counters = f", {workload.counters} counters" if workload.counters > 1 else ""
    quota = f", quota {workload.quota:,.3g} a second" if workload.quota else ""
    return (
        f"{workload.name}: {workload.sites:,} sites{counters}, {len(workload):,} events in {workload.seconds:,.0f} s"
        f"{quota}; alpha = {alpha:g} for ours"
    )
