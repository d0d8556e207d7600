"""Every verb of the command line, from the text of `--help`."""

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from countless.cli.main import build

HEAD = """# Command line

*Written by `python -m tools.reference` from the commands themselves.*

`countless VERB --help` prints the same. [Errors](errors.md#exit-codes-of-the-command-line) has the
exit codes. `countless --install-completion` installs completion for your shell.
"""


def page() -> str:
    group = typer.main.get_command(build())
    if not isinstance(group, TyperGroup):
        raise TypeError("a command line with several verbs is a group")
    commands = ((name, group.commands[name]) for name in sorted(group.commands))
    return HEAD + "".join(_section(name, command) for name, command in commands if isinstance(command, TyperCommand))


def _section(name: str, command: TyperCommand) -> str:
    context = typer.Context(command, info_name=f"countless {name}")
    rows = [parameter.get_help_record(context) for parameter in command.params]
    table = [f"| `{_cell(option)}` | {_cell(text)} |" for option, text in filter(None, rows) if "--help" not in option]
    example = _plain(command.epilog).removeprefix("Example:").strip()
    lines = [f"\n## {name}\n", f"{_plain(command.help)}\n", f"    {example}\n", "| | |", "|---|---|", *table, ""]
    return "\n".join(lines)


def _plain(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")
