"""All commands as one typer program, from the files that `PANELS` names."""

import re
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from countless import __version__, cli
from countless.errors import CountlessError

_NEGATIVE = re.compile(r"-\.?\d.*")


def build(words: Sequence[str] = ()) -> typer.Typer:
    """If `words` name a command, with that one only: to import all takes 0.3 s more."""
    app = _group(cli, words, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})

    def show_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"countless {__version__}")
            raise typer.Exit

    @app.callback(help=cli.__doc__)
    def root(
        context: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
        ] = False,
    ) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())
            raise typer.Exit(2)

    return app


def _group(package: ModuleType, words: Sequence[str], **settings: Any) -> typer.Typer:
    panels: dict[str, tuple[str, ...]] = package.PANELS
    places = {name: panel for panel, names in panels.items() for name in names}
    homes = _homes(words) if package is cli else {name: f"{package.__name__}.{name}" for name in places}

    class InOrder(TyperGroup):  # without it, nouns come after all other commands
        def list_commands(self, ctx: Any) -> list[str]:
            return [name for name in (*places, *homes.keys() - places) if name in self.commands]

    app = typer.Typer(cls=InOrder, help=package.__doc__, pretty_exceptions_enable=False, **settings)
    for name in set(homes).intersection(words[:1]) or homes:
        module, panel = import_module(homes[name]), places.get(name, "Other")
        noun = _group(module, words[1:]) if hasattr(module, "PANELS") else getattr(module, "app", None)
        if noun is not None:
            app.add_typer(noun, name=name, rich_help_panel=panel)
        else:
            command = app.command(cls=WithNumbers, epilog=module.EXAMPLE, rich_help_panel=panel)
            command(getattr(module, name))
    return app


class WithNumbers(TyperCommand):
    """-1 is a wrong number, which the command names, and no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = any(_NEGATIVE.fullmatch(each) for each in args)
        return super().parse_args(ctx, args)


def _homes(words: Sequence[str]) -> dict[str, str]:
    """The module of each command. Those of other packages are looked for only if `words` name none of ours."""
    own = {name: f"{cli.__name__}.{name}" for names in cli.PANELS.values() for name in names if name not in cli.LAB}
    if own.keys() & set(words[:1]):
        return own
    others = {entry.name: entry.value for entry in entry_points(group="countless.commands")} | cli.OTHERS
    if words[:1] and words[0] in cli.LAB and words[0] not in others:
        raise CountlessError(f"{words[0]} needs countless-lab; in a clone of the repository, run: pip install ./lab")
    return others | own
