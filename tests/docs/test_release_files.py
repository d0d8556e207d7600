"""The files of a release agree with the code."""

import re
from pathlib import Path

import yaml

import countless
from countless.server.storage.schema import SCHEMA
from countless.wire.frames import VERSION

ROOT = Path(__file__).parents[2]


def test_changelog_has_the_version_and_its_formats_in_few_lines() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## ")[2].splitlines()
    assert lines[0].startswith(countless.__version__)
    assert len(lines) <= 40
    (formats,) = [line for line in lines if line.startswith("**Formats.**")]
    assert re.findall(r"\d+", formats) == [str(VERSION), str(SCHEMA)]


def test_citation_has_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == countless.__version__


def test_issue_forms_are_forms() -> None:
    for name in ("bug", "limit"):
        form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form)
        assert all({"type", "id", "attributes"} <= set(part) for part in form["body"])
