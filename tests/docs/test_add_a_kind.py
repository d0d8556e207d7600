"""The kind that `design/contributing/add-a-kind.md` adds: as a patch, which is kept true."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.service import TIMEOUT_S

ROOT = Path(__file__).resolve().parents[2]
PATCH = ROOT / "design" / "contributing" / "maximum.patch"
MAX_PRODUCT_FILES = 8  # four of its own: in core, wire, client and server


def apply(*options: str, to: Path) -> str:
    """Less context than usual: lines nearby may change."""
    command = ["git", "apply", "-C1", *options, str(PATCH)]
    done = subprocess.run(command, cwd=to, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"write {PATCH.name} again, from a tree with the kind:\n{done.stderr}"
    return done.stdout


def test_patch_applies_and_touches_few_files() -> None:
    apply("--check", to=ROOT)
    added = {file: n for n, _, file in (line.split("\t") for line in apply("--numstat", to=ROOT).splitlines())}
    product = [file for file in added if file.startswith("src/")]
    assert len(product) <= MAX_PRODUCT_FILES, product
    page = (PATCH.parent / "add-a-kind.md").read_text(encoding="utf-8")
    rows = [f"| `{file}` | {n} |" for file, n in added.items()]
    assert [row for row in rows if row not in page] == []


@pytest.mark.soak
def test_kind_of_the_patch_passes_the_conformance_suite(tmp_path: Path) -> None:
    copy = tmp_path / "countless"
    copy.mkdir()
    for name in ("src", "tests", "simulator", "lab", "conftest.py", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    apply(to=copy)
    print(apply("--stat", to=copy))
    paths = f"{copy}/src:{copy}/lab/src:{copy}"
    suites = (
        "tests/core/test_maximum.py",
        "tests/server/test_maximum.py",
        "tests/server/sessions/test_conformance.py",
        "tests/wire",
        "tests/server/http/test_capabilities.py",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *suites]
    variables = {**os.environ, "PYTHONPATH": paths, "PYTEST_ADDOPTS": "-n 2"}
    done = subprocess.run(command, cwd=copy, env=variables, capture_output=True, text=True, timeout=10 * TIMEOUT_S)
    assert done.returncode == 0, done.stdout[-5000:]
