"""Every command, panel by panel, from the text of `--help`."""

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from countless import cli
from countless.cli.commands import build

HEAD = """# Command line

*Written by `python -m tools.reference` from the commands themselves.*

`countless COMMAND --help` prints the same. [Errors](errors.md#exit-codes-of-the-command-line) has the
exit codes. `countless --install-completion` installs completion for your shell.

Commands that ask a coordinator take `--url` and `--token`, and commands that print an answer take `--json`.
Instead of a token, `COUNTLESS_TOKEN_FILE` can name a file with one.

| | |
|---|---|
"""
SHARED = ("--url", "--token", "--json")
Rows = dict[str, str]


def page() -> str:
    group = typer.main.get_command(build())
    if not isinstance(group, TyperGroup):
        raise TypeError("a command line with several commands is a group")
    shared = {option: row for option, row in _rows("get", group.commands["get"]).items() if option.startswith(SHARED)}
    text = HEAD + _table(shared)
    for panel, names in cli.PANELS.items():
        text += f"\n## {panel}\n"
        for name in names:
            text += _sections(name, group.commands[name], shared)
    return text


def _sections(words: str, command: object, shared: Rows) -> str:
    if isinstance(command, TyperGroup):
        about = "".join(f"\n{_plain(paragraph)}\n" for paragraph in (command.help or "").split("\n\n")[1:])
        return about + "".join(_sections(f"{words} {name}", each, shared) for name, each in command.commands.items())
    if not isinstance(command, TyperCommand):
        raise TypeError(f"{words} is neither a command nor a group")
    paragraphs = (f"{_plain(paragraph)}\n\n" for paragraph in (command.help or "").split("\n\n"))
    example = _plain(command.epilog).removeprefix("Example:").strip()
    own = {option: row for option, row in _rows(words, command).items() if shared.get(option) != row}
    table = f"\n| | |\n|---|---|\n{_table(own)}" if own else ""
    return f"\n### {words}\n\n{''.join(paragraphs)}    {example}\n{table}"


def _rows(words: str, command: object) -> Rows:
    if not isinstance(command, TyperCommand):
        raise TypeError(f"{words} is not a command")
    context = typer.Context(command, info_name=f"countless {words}")
    records = filter(None, (parameter.get_help_record(context) for parameter in command.params))
    return {_cell(option): _cell(text) for option, text in records if "--help" not in option}


def _table(rows: Rows) -> str:
    return "".join(f"| `{option}` | {text} |\n" for option, text in rows.items())


def _plain(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")
