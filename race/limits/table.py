"""The tables of the race for limits, for a terminal and for the docs. The best value of each column is marked."""

from collections.abc import Iterator, Sequence
from math import inf

from rich.table import Table

from race.limits.play import Result
from race.limits.workloads import WORKLOADS
from race.table import BEST, Column, cells, whole
from tools import tables

README_SITES = 3
README_ROWS = {  # contestant: its name in the README
    "limits, fixed window": "`limits` + Redis",
    "limits, fixed window, AOF": "the same, `appendfsync always`",
    "block leases, AOF": "leases of blocks, `appendfsync always`",
    "sync every 100 ms": "sync with Redis every 100 ms",
    "L/k per site": "a fixed share for each process",
    "Countless, slack 1 %": "**Countless**",
}


def duration(us: float) -> str:
    if us < 10:
        return f"{us:.1f} µs"
    return f"{us:,.0f} µs" if us < 1000 else f"{us / 1000:,.1f} ms"


def units(value: float) -> str:
    return "never" if value == inf else whole(value)


COLUMNS: tuple[Column[Result], ...] = (
    Column("over L", lambda row: row.over, whole),
    Column(
        "first refusal at", lambda row: inf if row.first_refusal is None else row.first_refusal, units, judged=False
    ),
    Column("wrong refusals", lambda row: row.wrong_refusals, whole),
    Column("messages", lambda row: row.messages, whole),
    Column("bytes", lambda row: row.bytes, whole),
    Column("p50", lambda row: row.p50_us, duration),
    Column("p99", lambda row: row.p99_us, duration),
)
AWAY = "decided while away"
SUMMARY = (
    "",
    "over L",
    "first refusal at",
    "wrong refusals",
    "killed: over L / decided while away",
    "holds: over L / wrong refusals",
    "messages, steady / overload",
    "bytes, steady",
    "p50 / p99, steady",
)
README_COLUMNS = (
    "",
    "over the limit",
    "refused although units were left",
    "over, if the server is killed",
    "over, with reservations",
    "median decision",
)
WORST_OF = ("steady", "hot", "moving", "overload")  # requests of one unit, and a server


def results_table(rows: Sequence[Result]) -> Table:
    """One workload, one number of sites."""
    first = rows[0]
    title = f"{first.workload}: {first.sites} sites, {first.offered:,} requests, L = {first.limit:,}"
    table = Table(title=title, title_justify="left")
    titles, body = _columns(rows, BEST)
    for number, column in enumerate(titles):
        table.add_column(column, justify="right" if number else "left", no_wrap=not number)
    for texts in body:
        table.add_row(*texts)
    return table


def measured(results: Sequence[Result]) -> Iterator[tables.Table]:
    """The tables of design/measurements/limits.md, design/measurements/race.md and the README."""
    for sites in dict.fromkeys(row.sites for row in results):
        mine = [row for row in results if row.sites == sites]
        for workload in dict.fromkeys(row.workload for row in mine):
            titles, body = _columns([row for row in mine if row.workload == workload], "**{}**")
            yield tables.Table(f"limits-{workload}-{sites}", titles, body)
        yield tables.Table(f"limits-{sites}", SUMMARY, list(_summary(mine)))
        if sites == README_SITES:
            yield tables.Table("limits-summary", README_COLUMNS, list(_readme(mine)))


def _columns(rows: Sequence[Result], best: str) -> tuple[list[str], list[list[str]]]:
    titles = ["", *(column.title for column in COLUMNS)]
    body = [[row.contestant, *texts] for row, texts in zip(rows, cells(COLUMNS, rows, best), strict=True)]
    if rows[0].offered_away:
        titles.append(AWAY)
        for row, texts in zip(rows, body, strict=True):
            texts.append(f"{row.decided_away:,} of {row.offered_away:,}")
    return titles, body


def _summary(results: Sequence[Result]) -> Iterator[list[str]]:
    """One row for each contestant that ran everything. The first columns have the worst of several workloads."""
    for contestant in dict.fromkeys(row.contestant for row in results):
        rows = {row.workload: row for row in results if row.contestant == contestant}
        if set(rows) != set(WORKLOADS):
            continue
        worst = [rows[name] for name in WORST_OF]
        steady, overload, killed, holds = (rows[name] for name in ("steady", "overload", "killed", "holds"))
        yield [
            contestant,
            whole(max(row.over for row in worst)),
            units(min(COLUMNS[1].number(row) for row in worst)),
            whole(max(row.wrong_refusals for row in worst)),
            f"{whole(killed.over)} / {killed.decided_away:,} of {killed.offered_away:,}",
            f"{whole(holds.over)} / {whole(holds.wrong_refusals)}",
            f"{whole(steady.messages)} / {whole(overload.messages)}",
            whole(steady.bytes),
            f"{duration(steady.p50_us)} / {duration(steady.p99_us)}",
        ]


def _readme(results: Sequence[Result]) -> Iterator[list[str]]:
    """The contestants that a reader of the README compares."""
    for contestant, name in README_ROWS.items():
        rows = {row.workload: row for row in results if row.contestant == contestant}
        if set(rows) == set(WORKLOADS):
            worst = [rows[workload] for workload in WORST_OF]
            yield [
                name,
                whole(max(row.over for row in worst)),
                whole(max(row.wrong_refusals for row in worst)),
                whole(rows["killed"].over),
                whole(rows["holds"].over),
                duration(rows["steady"].p50_us),
            ]
