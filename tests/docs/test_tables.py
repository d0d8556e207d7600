"""Measured tables in the docs: every block has a command that writes it, and a well-formed table in it."""

from pathlib import Path

import pytest

from bench.__main__ import LONG, SECTIONS
from tools.tables import Table, blocks, write

ROOT = Path(__file__).parents[2]
RACE = {"race-steady", "race-bursty", "race-idle", "race-feedback", "race-counters", "race-killed", "race-summary"}


def test_every_block_has_one_command_that_writes_it() -> None:
    written = [name for section in (SECTIONS | LONG).values() for name in section.tables]
    assert len(written) == len(set(written))
    assert set(written) | RACE == set(blocks())


@pytest.mark.parametrize("name", blocks())
def test_block_contains_a_table(name: str) -> None:
    header, rule, *rows = blocks()[name][1].splitlines()
    width = header.count("|")
    assert set(rule) <= set("|-: ")
    assert rows
    assert all(line.startswith("| ") and line.endswith(" |") and line.count("|") == width for line in (header, *rows))
    assert rule.count("|") == width


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
