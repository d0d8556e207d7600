"""The site builds, loads nothing from elsewhere, and its formulas are typeset; links lead somewhere."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from mkdocs.exceptions import PluginError

from tools.index_page import first_screen
from tools.plain_math import latex
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
def test_pages_about_the_paper_have_typeset_formulas_and_no_page_has_an_unfinished_one(site: Path) -> None:
    assert "<math" in (site / "paper" / "index.html").read_text(encoding="utf-8")
    for page in site.rglob("*.html"):
        assert "arithmatex" not in page.read_text(encoding="utf-8"), page


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
    assert any(entry["location"].startswith("reference/python/#tracker") for entry in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alpha N0/E", r"\alpha N_0/E"),
        ("theta_(j+1) <= 2 sqrt k", r"\theta_{j+1} \le 2 \sqrt{k}"),
        ("sum over j < K of e^(-s (1+alpha) h)", r"\sum_{j \lt K} e^{-s (1+\alpha ) h}"),
        ("P(S in A | π) = floor(x) + 1e-4", r"P(S \in A \mid \pi ) = \lfloor x\rfloor + 10^{-4}"),
        ("(n-1, n]", r"(n-1,\; n]"),
        ("|X_t| <= M₂(s)^pop(j)", r"\vert X_{t}\vert \le M_2(s)^{\mathrm{pop}(j)}"),
        ("step", r"\mathrm{step}"),
        ("h = 1/least step", r"h = 1/\mathrm{least}\ \mathrm{step}"),
    ],
)
def test_formula_in_plain_text_is_read(text: str, expected: str) -> None:
    made = latex(text)
    assert made is not None
    assert re.sub(r"\s+", " ", made).replace(" _{", "_{") == expected


@pytest.mark.parametrize("text", ["dithered", "Phase.low", "countless plan", "add(n)", "leak_map", "_least", "lower"])
def test_name_of_the_code_is_no_formula(text: str) -> None:
    assert latex(text) is None
