"""Commands whose packages are missing name the command that installs them, before any work."""

import sys

import pytest

from countless import cli
from countless.cli import commands
from countless.cli.main import INSTALL_SERVER
from support.commands import run_command


def test_coordinator_names_the_extra_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "countless.server.serve", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = run_command("serve")
    error = (
        "countless: uvicorn is not installed; run, best in an environment of its own: pip install 'countless[server]'\n"
    )
    assert (result.returncode, result.stdout, result.stderr) == (2, "", error)


@pytest.mark.parametrize("words", ["demo", "demo --keep", "lab", "lab attack --scheme hyz"])
def test_without_the_lab_its_commands_name_what_installs_it(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "entry_points", lambda group: ())
    monkeypatch.setattr(cli, "OTHERS", {})
    result = run_command(*words.split())
    error = f"countless: {words.split()[0]} needs countless-lab; in a clone of the repository, run: pip install ./lab\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", error)
    assert "demo" not in run_command("--help").stdout


@pytest.mark.parametrize("words", ["", "demo", "get hits"])
def test_without_the_command_lines_own_packages_one_line_names_them(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    result = run_command(*words.split())
    error = f"countless: the command line needs more packages; {INSTALL_SERVER}\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", error)
