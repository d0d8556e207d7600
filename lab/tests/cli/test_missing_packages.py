"""Commands whose packages are missing name the command that installs them, before any work."""

import sys

import pytest

from support.commands import run_command


@pytest.mark.parametrize(
    ("words", "package"),
    [
        ("lab attack", "joblib"),
        ("lab attack", "scipy"),
        ("lab audit", "scipy"),
        ("lab report", "plotly"),
        ("lab report", "joblib"),
        ("lab scaling", "joblib"),
        ("lab scaling --out figures", "plotly"),
    ],
)
def test_lab_command_names_its_extra(words: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    result = run_command(*words.split())
    error = f"countless: {package} is not installed; run: pip install 'countless-lab[figures]'\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", error)
