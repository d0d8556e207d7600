"""`countless` in the process of the test: to start one for each command takes half a second."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from subprocess import CompletedProcess

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

from countless.cli import coordinator
from countless.cli.commands import build
from countless.cli.main import main


@cache
def all_commands() -> dict[str, TyperCommand]:
    """By its words, such as `budget create`."""

    def found(words: str, command: object) -> dict[str, TyperCommand]:
        if isinstance(command, TyperGroup):
            children = (found(f"{words} {name}".strip(), each) for name, each in command.commands.items())
            return {name: each for child in children for name, each in child.items()}
        assert isinstance(command, TyperCommand)
        return {words: command}

    return found("", typer.main.get_command(build()))


def command_of(words: list[str]) -> TyperCommand:
    """The command that these words begin with; a KeyError if there is none."""
    commands = all_commands()
    return commands[words[0] if words[0] in commands else " ".join(words[:2])]


def run_command(*arguments: str, **variables: str) -> CompletedProcess[str]:
    """The command with these environment variables, as `subprocess.run` would describe it. It waits for no coordinator
    that is starting.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "WAIT_S", 0.0)
        return run_waiting_command(*arguments, **variables)


def run_waiting_command(*arguments: str, **variables: str) -> CompletedProcess[str]:
    output, errors = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["countless", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return CompletedProcess(arguments, int(ended.value.code or 0), output.getvalue(), errors.getvalue())
