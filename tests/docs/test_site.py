"""The documentation site: it builds, loads nothing from elsewhere, and its formulas are typeset."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.index_page import first_screen
from tools.plain_math import latex

ROOT = Path(__file__).parents[2]
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
    assert len(pages) > 70
    for page in pages:
        assert not LOADED.findall(page.read_text(encoding="utf-8")), page
    assert not [
        style for style in site.rglob("*.css") if re.search(r"url\(.?https?:", style.read_text(encoding="utf-8"))
    ]


@pytest.mark.slow
def test_every_theory_page_has_typeset_formulas_and_no_unfinished_one(site: Path) -> None:
    for page in (site / "theory").glob("*/index.html"):
        text = page.read_text(encoding="utf-8")
        assert "<math" in text, page
        assert "arithmatex" not in text, page


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
