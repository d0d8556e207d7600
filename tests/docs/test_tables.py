"""Measured tables in the docs: every block has a command that writes it, and a well-formed table in it."""

from pathlib import Path

import pytest

from bench import break_even, load, scale
from bench.__main__ import LONG, SECTIONS
from bench.tournament import SHORT_ADVERSARIES, SHORT_SCHEMES
from race.limits.command import SITES
from race.limits.workloads import WORKLOADS
from tools.tables import Table, blocks, write

ROOT = Path(__file__).parents[2]
RACE = {"race-steady", "race-bursty", "race-idle", "race-feedback", "race-counters", "race-killed", "race-summary"}
RACE |= {"race-llm"}
LIMITS = {"limits-summary", "limits-scarce", *(f"limits-{sites}" for sites in SITES)}
LIMITS |= {f"limits-{name}-{sites}" for name in WORKLOADS for sites in SITES}


def test_every_block_has_one_command_that_writes_it() -> None:
    written = [name for section in (SECTIONS | LONG).values() for name in section.tables]
    assert len(written) == len(set(written))
    assert set(written) | RACE | LIMITS == set(blocks())


@pytest.mark.parametrize("name", blocks())
def test_block_contains_a_table(name: str) -> None:
    header, rule, *rows = blocks()[name][1].splitlines()
    width = header.count("|")
    assert set(rule) <= set("|-: ")
    assert rows
    assert all(line.startswith("| ") and line.endswith(" |") and line.count("|") == width for line in (header, *rows))
    assert rule.count("|") == width


@pytest.mark.parametrize("table", [*break_even.main(), *scale.frames()], ids=lambda table: table.name)
def test_computed_table_is_what_its_command_computes(table: Table) -> None:
    assert blocks()[table.name][1] == table.markdown()


def test_flush_and_deterministic_send_equally_many_messages_at_break_even() -> None:
    seconds = break_even.break_even_s(sites=100, alpha=0.01, rate=1_000, period_s=15)
    flushed = break_even.flush(100, 1_000, seconds, 15)
    assert flushed == pytest.approx(break_even.deterministic(100, 0.01, 1_000, seconds), rel=1e-4)
    assert break_even.flush(100, 1_000, 2 * seconds, 15) > break_even.deterministic(100, 0.01, 1_000, 2 * seconds)


def test_short_tournament_says_what_the_whole_one_says() -> None:
    whole, short = cells("arena-tournament"), cells("tournament-short")
    assert short.items() <= whole.items()
    assert len(short) == len(SHORT_ADVERSARIES) * len(SHORT_SCHEMES)


def cells(name: str) -> dict[tuple[str, str], str]:
    """The cells of a block by row and column."""
    header, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in blocks()[name][1].splitlines())
    return {(row[0], column): cell for row in rows for column, cell in zip(header[1:], row[1:], strict=True)}


def test_write_replaces_one_block(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    (tmp_path / "README.md").write_text("")
    block = "<!-- bench:{} -->\nold\n<!-- /bench -->\n"
    page.write_text("before\n" + block.format("a") + "between\n" + block.format("b"))
    assert write(Table("a", ("name", "count"), [("x", "1,000"), ("y", "**2**")]), tmp_path) == page
    table = "<!-- bench:a -->\n| name | count |\n| --- | ---: |\n| x | 1,000 |\n| y | **2** |\n<!-- /bench -->\n"
    assert page.read_text() == "before\n" + table + "between\n" + block.format("b")


def test_two_blocks_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("<!-- bench:a -->\n<!-- /bench -->\n" * 2)
    with pytest.raises(ValueError, match="two blocks named 'a'"):
        blocks(tmp_path)


def test_load_table_has_a_column_for_each_frame_size() -> None:
    measured = [load.Figures(10, 131_000.4, 90_000, 11.2, 27.4), load.Figures(1, 50_000, 20_000, 12, 136.5)]
    assert load.table("load", measured).markdown() == (
        "|  | 10 reports in a frame | 1 report in a frame |\n"
        "| --- | ---: | ---: |\n"
        "| reports per processor second of the coordinator | 131,000 | 50,000 |\n"
        "| reports a second | 90,000 | 20,000 |\n"
        "| p50 from report to visible answer, at 20,000 reports a second | 11 ms | 12 ms |\n"
        "| p99 from report to visible answer, at 20,000 reports a second | 27 ms | 136 ms |\n"
    )
