"""The site builds, loads nothing from elsewhere, and its formulas are typeset; links lead somewhere."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

from tools import formulas
from tools.formulas import BLOCK, INLINE
from tools.index_page import first_screen
from tools.narrow_tables import on_page_content
from tools.repository_links import broken, on_page_markdown

ROOT = Path(__file__).parents[2]
REPOSITORY = [*sorted(ROOT.glob("*.md")), ROOT / "tests/README.md", *sorted((ROOT / "design").rglob("*.md"))]
LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]* src=[\"']?(https?:[^\"' >]*)|<link[^>]* href=[\"']?(https?:[^\"' >]*)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.slow
def test_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert not LOADED.findall(page.read_text(encoding="utf-8")), page
    assert not [
        style for style in site.rglob("*.css") if re.search(r"url\(.?https?:", style.read_text(encoding="utf-8"))
    ]


@pytest.mark.slow
def test_formulas_and_tables_are_typeset_and_no_page_shows_what_is_unfinished(site: Path) -> None:
    assert "<math" in (site / "paper" / "index.html").read_text(encoding="utf-8")
    for page in site.rglob("*.html"):
        assert not re.findall(r"<code>[^<]*\\\|[^<]*</code></td>", page.read_text(encoding="utf-8")), page
        assert "arithmatex" not in page.read_text(encoding="utf-8"), page


def test_cells_of_a_table_of_text_know_their_columns_and_numbers_stay_in_theirs() -> None:
    head = """<table>\n<thead>\n<tr>\n<th>event</th>\n<th><code>n="1"</code></th>\n<th>limits</th>\n</tr>\n</thead>"""
    table = f"{head}\n<tbody>\n<tr>\n<td>killed</td>\n<td>lost</td>\n<td>kept</td>\n</tr>\n</tbody>\n</table>"
    columns = {"event": "killed", "n=&quot;1&quot;": "lost", "limits": "kept"}
    cells = "\n".join(f'<td data-column="{column}">{text}</td>' for column, text in columns.items())
    made = on_page_content(table)
    assert made.startswith("<table data-stacked>")
    assert cells in made
    aligned = table.replace("<th>", '<th style="text-align: right;">').replace(
        "<td>", '<td style="text-align: right;">'
    )
    for other in (aligned, table.replace("<th>limits</th>\n", "").replace("<td>kept</td>\n", "")):
        assert on_page_content(other) == other


def test_site_is_short() -> None:
    """Counted as `wc -w` counts; what is only for those who build Countless belongs into design/."""
    pages = list((ROOT / "docs").rglob("*.md"))
    assert 33 <= len(pages) <= 36
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 42_000


@pytest.mark.parametrize("page", REPOSITORY, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_in_the_repository_lead_to_files_and_headings(page: Path) -> None:
    assert not list(broken(page))


def test_link_from_the_site_to_the_repository_needs_a_file_and_a_heading() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    made = on_page_markdown("[claims](repo:design/claims.md)", page)
    assert re.fullmatch(r"\[claims\]\(https://\S+/blob/v\d\S+/design/claims\.md\)", made)
    for wrong in ("repo:design/claim.md", "repo:design/claims.md#c0"):
        with pytest.raises(PluginError, match=r"index\.md: no "):
            on_page_markdown(f"[claims]({wrong})", page)


@pytest.mark.slow
def test_index_has_the_first_screen_of_the_readme_and_search_finds_the_reference(site: Path) -> None:
    title = next(line for line in first_screen().splitlines() if line.startswith("**")).strip("*")
    assert title in (site / "index.html").read_text(encoding="utf-8")
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    assert any(entry["location"].startswith("reference/python/client/#clientcounter") for entry in found)


@pytest.mark.parametrize("page", [*REPOSITORY, *sorted((ROOT / "docs").rglob("*.md"))], ids=str)
def test_every_formula_is_valid(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for formula in [*INLINE.findall(text), *(body for _, body in BLOCK.findall(text))]:
        convert(formula.strip())
        assert formula.replace(r"\{", "").count("{") == formula.replace(r"\}", "").count("}"), formula


def test_formula_in_a_line_and_in_a_block_are_typeset() -> None:
    page = "with $`\\sqrt{k}`$:\n\n```math\nx^2\n```\n"
    assert formulas.on_page_markdown(page) == "with \\(\\sqrt{k}\\):\n\n$$\nx^2\n$$\n"
