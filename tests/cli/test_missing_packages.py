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
    error = f"countless: {package} is not installed; run: pip install 'countless[lab]'\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", error)


@pytest.mark.parametrize(("words", "package", "module"), [
    ("demo", "rich.console", "countless.demo.acts"),
    ("serve", "uvicorn", "countless.server.serve"),
])  # fmt: skip
def test_other_commands_name_the_extra_of_the_server(
    words: str, package: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    result = run_command(*words.split())
    error = f"countless: {package.partition('.')[0]} is not installed; run: pip install 'countless[server]'\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", error)


@pytest.mark.parametrize("words", ["", "demo", "get hits"])
def test_without_the_command_lines_own_packages_one_line_names_them(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    result = run_command(*words.split())
    error = "countless: the command line needs more packages; run: pip install 'countless[server]'\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", error)
