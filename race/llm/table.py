"""The table of the race for calls of models, for a terminal and for the docs."""

from collections.abc import Sequence

from rich.table import Table

from race.llm.play import Result
from tools import tables

COLUMNS = (
    "", "tokens over the limit", "refused although they would fit", "tokens used of the limit",
    "store killed: over / not decided", "messages per call", "p50 / p99",
)  # fmt: skip


def results_table(results: Sequence[Result]) -> Table:
    table = Table(title="Calls of models; the store is killed in the last minute", title_justify="left")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number else "left")
    for row in _rows(results):
        table.add_row(*row)
    return table


def measured(results: Sequence[Result]) -> tables.Table:
    return tables.Table("race-llm", COLUMNS, _rows(results))


def _rows(results: Sequence[Result]) -> list[list[str]]:
    return [_row(result) for result in results]


def _row(result: Result) -> list[str]:
    *before, killed = result.minutes
    offered = sum(minute.offered for minute in before)
    charged = sum(minute.charged for minute in before) / len(before) / result.limit
    return [
        result.contestant,
        _range([minute.over for minute in before]),
        f"{sum(minute.wrong_refusals for minute in before):,} of {sum(minute.refused for minute in before):,}",
        f"{charged:.1%}",
        f"{killed.over:,} / {killed.failed:,} of {killed.offered:,}",
        f"{sum(minute.messages for minute in before) / offered:.1f}",
        f"{_quantile(result, 0.5):.1f} / {_quantile(result, 0.99):.0f} ms",
    ]


def _range(numbers: Sequence[int]) -> str:
    return f"{min(numbers):,} to {max(numbers):,}" if max(numbers) else "0"


def _quantile(result: Result, part: float) -> float:
    return result.proxy_ms[int(len(result.proxy_ms) * part)]
