"""Schemes and adversaries of other packages, without a change here."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from countless import plugins as module
from countless.core.estimator import Scheme
from countless.errors import InvalidParameter
from countless.plugins import plugins
from countless.schemes.registry import SCHEMES

MINE = """
from countless_lab.arena.adversaries.controls import RoundRobin
from countless.schemes.exact import Exact

class Mine(Exact):
    name = "mine"

class Theirs(RoundRobin):
    name = "theirs"
"""


@pytest.mark.slow
def test_installed_package_adds_a_scheme_and_an_adversary(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    installed = tmp_path / "mine-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    points = "[countless.schemes]\nmine = mine:Mine\n[countless.adversaries]\ntheirs = mine:Theirs\n"
    (installed / "entry_points.txt").write_text(points)
    command = [sys.executable, "-m", "countless.cli.main", "lab", "attack", "--scheme", "mine", "--adversary", "theirs"]
    small = ["--sites", "2", "--alpha", "0.1", "--events", "100", "--trials", "1", "--jobs", "1"]
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [*command, *small], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    assert result.returncode == 0, result.stderr
    assert "mine" in result.stdout
    assert "theirs" in result.stdout


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mine", "countless.schemes.exact:Exact", "whose name is 'mine'"),
        ("Path", "pathlib:Path", "a subclass of Scheme"),
        ("exact", "countless.schemes.exact:Exact", "does not use itself"),
    ],
)
def test_wrong_entry_points_are_refused(name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "entry_points", lambda group: [EntryPoint(name, value, group)])
    with pytest.raises(InvalidParameter, match=message):
        plugins("countless.schemes", Scheme, SCHEMES)
