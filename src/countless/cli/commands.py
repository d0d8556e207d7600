"""All commands as one typer program, from the files that `PANELS` names."""

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from countless import __version__, cli


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

    class InOrder(TyperGroup):  # without it, nouns come after all other commands
        def list_commands(self, ctx: Any) -> list[str]:
            return [name for name in places if name in self.commands]

    app = typer.Typer(cls=InOrder, help=package.__doc__, pretty_exceptions_enable=False, **settings)
    for name in set(places).intersection(words[:1]) or places:
        module = import_module(f"{package.__name__}.{name}")
        noun = _group(module, words[1:]) if hasattr(module, "PANELS") else getattr(module, "app", None)
        if noun is not None:
            app.add_typer(noun, name=name, rich_help_panel=places[name])
        else:
            context = getattr(module, "CONTEXT_SETTINGS", None)
            command = app.command(epilog=module.EXAMPLE, context_settings=context, rich_help_panel=places[name])
            command(getattr(module, name))
    return app
