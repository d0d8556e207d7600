"""Tables in the docs and in design/ that the command which measures them writes.

A page marks the place of a table by two comments; `python -m bench --write` and `python -m race --write` replace what
is between them:

    <!-- bench:NAME -->
    <!-- /bench -->
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(<!-- bench:([\w-]+) -->\n)(.*?)(<!-- /bench -->)", re.DOTALL)
_NUMBER = re.compile(r"\**[-+]?\d")


class Table(NamedTuple):
    """The name of a block, and the table in it."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Columns of numbers are aligned to the right."""
        cells = list(zip(*self.rows, strict=True))
        rules = ["---:" if all(map(_NUMBER.match, column)) else "---" for column in cells]
        return "".join(f"| {' | '.join(row)} |\n" for row in (self.columns, rules, *self.rows))


def blocks(root: Path = ROOT) -> dict[str, tuple[Path, str]]:
    """The page and the contents of every block."""
    found: dict[str, tuple[Path, str]] = {}
    pages = (page for folder in ("docs", "design") for page in sorted((root / folder).rglob("*.md")))
    for page in (root / "README.md", *pages):
        for _, name, contents, _ in _BLOCK.findall(page.read_text(encoding="utf-8")):
            if name in found:
                raise ValueError(f"two blocks named {name!r}: in {found[name][0]} and in {page}")
            found[name] = (page, contents)
    return found


def write(table: Table, root: Path = ROOT) -> Path:
    """Replace the contents of the table's block; the page that has it."""
    page, _ = blocks(root)[table.name]
    text = page.read_text(encoding="utf-8")
    inside = table.markdown()
    text = _BLOCK.sub(lambda block: f"{block[1]}{inside}{block[4]}" if block[2] == table.name else block[0], text)
    page.write_text(text, encoding="utf-8")
    return page


def publish(tables: Iterable[Table], save: bool) -> None:
    """Print each table when it is measured and, with `save`, write it into its page."""
    for table in tables:
        print(f"\n{table.name}\n\n{table.markdown()}", flush=True)
        if save:
            print(f"written to {write(table).relative_to(ROOT)}", flush=True)
