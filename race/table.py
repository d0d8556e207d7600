"""The tables of a race, for a terminal and for the docs. The best value of each column is marked."""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from rich.table import Table

from race.killed import Loss
from race.play import Result
from race.workloads import Workload
from tools import tables

BEST = "[bold green]{}[/]"  # in a terminal
SUMMARY = "steady"  # the workload of the table in the README


Row = TypeVar("Row")


class Column(NamedTuple, Generic[Row]):
    """A number of each result, and its text. Small is good, where it is `judged`."""

    title: str
    number: Callable[[Row], float]
    text: Callable[[float], str]
    judged: bool = True


def whole(value: float) -> str:
    return f"{value:,.0f}"


def percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def seconds(value: float) -> str:
    return f"{value:,.1f} s"


COLUMNS: tuple[Column[Result], ...] = (
    Column("messages", lambda row: row.messages + row.heartbeats, whole),
    Column("of them heartbeats", lambda row: row.heartbeats, whole, judged=False),
    Column("bytes", lambda row: row.bytes, whole),
    Column("lost on the way", lambda row: row.dropped, whole, judged=False),
    Column("worst error", lambda row: row.worst_error, percent),
    Column("... 2nd half", lambda row: row.late_error, percent),
    Column("oldest answer", lambda row: row.worst_age, seconds),
    Column("CPU s per 1e6 events", lambda row: row.cpu_seconds_per_million, lambda value: f"{value:,.1f}"),
)
OVER_QUOTA: Column[Result] = Column("over quota", lambda row: row.over_quota or 0.0, percent)


def cells(columns: Sequence[Column[Row]], rows: Sequence[Row], best: str) -> list[list[str]]:
    """The texts of all numbers; `best` is the format of the best one of a column."""
    minimum = [min(column.number(row) for row in rows) for column in columns]
    return [
        [
            best.format(column.text(number)) if column.judged and number == least else column.text(number)
            for column, least in zip(columns, minimum, strict=True)
            for number in (column.number(row),)
        ]
        for row in rows
    ]


def results_table(workload: Workload, rows: Sequence[Result], alpha: float) -> Table:
    columns = (*COLUMNS, OVER_QUOTA) if workload.quota else COLUMNS
    table = Table(title=_title(workload, alpha), title_justify="left", caption_justify="left")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column.title, justify="right")
    for row, texts in zip(rows, cells(columns, rows, BEST), strict=True):
        table.add_row(row.contestant, *texts)
    return table


def losses_table(rows: Sequence[Loss]) -> Table:
    first = rows[0]
    title = f"{first.workload}: events lost by kill -9, of {first.counted_until_then:,} counted before"
    table = Table(title=title, title_justify="left")
    for column in LOSS_COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for row in rows:
        table.add_row(row.contestant, f"{row.sites_killed:,}", f"{row.server_killed:,}")
    return table


LOSS_COLUMNS = ("", "all sites killed", "server killed and restarted")


def _title(workload: Workload, alpha: float) -> str:
    counters = f", {workload.counters} counters" if workload.counters > 1 else ""
    quota = f", quota {workload.quota:,.3g} a second" if workload.quota else ""
    return (
        f"{workload.name}: {workload.sites:,} sites{counters}, {len(workload):,} events in {workload.seconds:,.0f} s"
        f"{quota}; alpha = {alpha:g} for Countless"
    )


def measured(results: Sequence[Result], losses: Sequence[Loss]) -> list[tables.Table]:
    """The tables of design/measurements/race.md and of the README."""
    found = []
    for name in dict.fromkeys(row.workload for row in results):
        rows = [row for row in results if row.workload == name]
        columns = [column for column in COLUMNS if column.judged or any(map(column.number, rows))]
        columns += [OVER_QUOTA] if rows[0].over_quota is not None else []
        body = [(row.contestant, *texts) for row, texts in zip(rows, cells(columns, rows, "**{}**"), strict=True)]
        found.append(tables.Table(f"race-{name}", ("", *(column.title for column in columns)), body))
    lost = {loss.contestant: loss for loss in losses}
    if lost:
        body = [(loss.contestant, f"{loss.sites_killed:,}", f"{loss.server_killed:,}") for loss in losses]
        found.append(tables.Table("race-killed", LOSS_COLUMNS, body))
        found.append(_summary([row for row in results if row.workload == SUMMARY], lost))
    return found


def _summary(rows: Sequence[Result], lost: dict[str, Loss]) -> tables.Table:
    columns = [COLUMNS[0], COLUMNS[2], *COLUMNS[5:7]]
    body = [
        (row.contestant, *texts, f"{lost[row.contestant].sites_killed:,} / {lost[row.contestant].server_killed:,}")
        for row, texts in zip(rows, cells(columns, rows, "{}"), strict=True)
    ]
    titles = (
        "messages",
        "bytes",
        "worst error, 2nd half",
        "oldest answer",
        "lost if all sites / the server are killed",
    )
    return tables.Table("race-summary", ("", *titles), body)
