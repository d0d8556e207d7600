"""Every command, panel by panel, from the text of `--help`."""

import re
from collections import Counter

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from countless import cli
from countless.cli.commands import build
from countless_lab import register

HEAD = """# Command line

*Written by `python -m tools.reference`.*

This page lists every command with its options, as `countless COMMAND --help` does; those of the lab are only there.
[Errors](errors.md#exit-codes-of-the-command-line) lists the exit codes. `countless --install-completion` installs
completion for your shell.

Commands that ask a coordinator take `--url` and `--token`, and commands that print an answer take `--json`.
Instead of a token, `COUNTLESS_TOKEN_FILE` can name a file with one.

"""
SHARED = ("--url", "--token", "--json")
OBVIOUS = re.compile(r"The \w+\. \[required\]")  # an argument that its example explains
OPTION = re.compile(r"(--\S+) (\S)")
DEFAULT = re.compile(r"default: \((.*)\)\]")
BRIEF = "Lab"  # the panel whose options only `--help` shows: that page is for those who run a coordinator
FEW = 2  # a command refers to another one for this many options and more
Rows = dict[str, str]
Listed = dict[tuple[str, str], str]  # options and their texts, with the first command of the panel that has them


def page() -> str:
    register()
    group = typer.main.get_command(build())
    if not isinstance(group, TyperGroup):
        raise TypeError("a command line with several commands is a group")
    shared = {option: row for option, row in _rows("get", group.commands["get"]).items() if option.startswith(SHARED)}
    text = HEAD + _list(shared)
    for panel, names in cli.PANELS.items():
        text += f"\n## {panel}\n"
        listed: Listed | None = None if panel == BRIEF else {}
        for name in names:
            text += _sections(name, group.commands[name], shared, listed)
    return text


def _sections(words: str, command: object, shared: Rows, listed: Listed | None) -> str:
    if isinstance(command, TyperGroup):
        about = [f"\n{_plain(paragraph)}\n" for paragraph in (command.help or "").split("\n\n")[1:]]
        head = f"\n### {words}\n{''.join(about)}" if about else ""
        return head + "".join(
            _sections(f"{words} {name}", each, shared, listed) for name, each in command.commands.items()
        )
    if not isinstance(command, TyperCommand):
        raise TypeError(f"{words} is neither a command nor a group")
    paragraphs = (f"{_plain(paragraph)}\n\n" for paragraph in (command.help or "").split("\n\n"))
    example = _plain(command.epilog).removeprefix("Example:").strip()
    section = f"\n### {words}\n\n{''.join(paragraphs)}    {example}\n"
    if listed is None:
        return section
    own = {option: row for option, row in _rows(words, command).items() if shared.get(option) != row}
    return section + _options(words, own, listed)


def _options(words: str, rows: Rows, listed: Listed) -> str:
    """A list of them, and the names of those that another command of the panel has, too."""
    firsts = {option: listed.setdefault((option, row), words) for option, row in rows.items()}
    others = [other for other, count in Counter(firsts.values()).items() if other != words and count >= FEW]
    own = {option: row for option, row in rows.items() if firsts[option] not in others}
    parts = [_list(own)] if own else []
    for other in others:
        names = ", ".join(f"`{option.split('=')[0]}`" for option, first in firsts.items() if first == other)
        parts.append(f"As in [{other}](#{other.replace(' ', '-')}): {names}.\n")
    return "".join(f"\n{part}" for part in parts)


def _rows(words: str, command: object) -> Rows:
    if not isinstance(command, TyperCommand):
        raise TypeError(f"{words} is not a command")
    context = typer.Context(command, info_name=f"countless {words}")
    records = filter(None, (parameter.get_help_record(context) for parameter in command.params))
    rows = {
        OPTION.sub(r"\1=\2", _plain(option).replace(" range>", ">")): DEFAULT.sub(r"default: \1]", _plain(text))
        for option, text in records
    }
    return {option: row for option, row in rows.items() if option != "--help" and not OBVIOUS.fullmatch(row)}


def _list(rows: Rows) -> str:
    return "".join(f"- `{option}`: {text}\n" for option, text in rows.items())


def _plain(text: str | None) -> str:
    return " ".join((text or "").split())
